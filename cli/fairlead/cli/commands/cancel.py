"""fairlead cancel."""

from fairlead.base.errors import RefusedError
from fairlead.cli.access import Changing, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.changing import change_each
from fairlead.cli.options import add_ids
from fairlead.queue.states import FINAL, RETRYABLE
from fairlead.queue.task import Task


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "cancel",
        "Cancel waiting tasks; running ones are asked to stop, then ended after their grace.",
        ["fairlead cancel ID", "fairlead cancel ID1 ID2"],
    )
    add_ids(made)
    return made


def main(words: list[str]) -> int:
    """Cancel waiting tasks, ask running ones to stop."""
    args = make_parser().parse_args(words)
    with Changing() as access:
        operations = access.operations()

        def cancel(task: Task) -> Task:
            _refuse_ended(task)
            return operations.cancel(task.id, by=who())

        return change_each([access.task(part) for part in args.ids], cancel, _describe, as_json=args.json)


def _refuse_ended(task: Task) -> None:
    if task.status in FINAL:
        again = f"; `fairlead retry {task.id}` runs it again" if task.status in RETRYABLE else ""
        raise RefusedError(f"task {task.id} cannot be cancelled: it has ended already ({task.status}){again}.")


def _describe(task: Task) -> str:
    return f"{task.id} is cancelled" if task.status in FINAL else f"{task.id} was asked to stop"
