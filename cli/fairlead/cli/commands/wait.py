"""fairlead wait."""

from collections.abc import Sequence
from typing import Any

from fairlead.base.errors import UnavailableError
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_ids, add_timeout
from fairlead.cli.output import forget_output, print_json
from fairlead.cli.waiting import tell_of_stopped, wait_until
from fairlead.queue.states import Status
from fairlead.queue.task import Outcome, Task


class TimeIsUpError(UnavailableError):
    """The tasks have not ended in time."""


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "wait",
        "Wait until tasks have ended. Exits with 0 if all completed, with 1 if one did not.",
        ["fairlead wait ID", "fairlead wait ID1 ID2 --timeout 1h"],
    )
    add_ids(made)
    add_timeout(made, "give up after this long, with exit code 6; the tasks go on")
    return made


def main(words: list[str]) -> int:
    """Wait until tasks have ended; 0 only if all completed."""
    args = make_parser().parse_args(words)
    access = Access()
    ids = [access.task(part).id for part in args.ids]
    return wait_for(access, ids, timeout=args.timeout, as_json=args.json)


def wait_for(access: Access, ids: Sequence[str], *, timeout: float | None, as_json: bool) -> int:
    """Wait for these tasks and tell how they ended."""
    ended: dict[str, Task] = {}

    def all_ended() -> bool:
        for task_id in ids:
            if task_id not in ended and access.is_over(task := access.task(task_id)):
                ended[task_id] = task
                _tell(task, as_json=as_json)
        return len(ended) == len(set(ids))

    if not all_ended():
        tell_of_stopped(access.paths, "daemon", "watchdog")
    if not wait_until(access.paths.bells, "wait", all_ended, timeout):
        left = [task_id for task_id in ids if task_id not in ended]
        raise TimeIsUpError(f"not ended in time: {', '.join(left)}; `fairlead why {left[0]}` says why.")
    if as_json:
        print_json([_plain(ended[task_id]) for task_id in ids])
    return 0 if all(task.status is Status.COMPLETED for task in ended.values()) else 1


def _tell(task: Task, *, as_json: bool) -> None:
    if as_json:
        return
    error = _outcome(task).error
    try:
        print(f"{task.id} {task.status}" + (f": {one_line(error, 500)}" if error else ""), flush=True)
    except BrokenPipeError:
        forget_output()  # nobody reads it, but the exit code still counts


def _plain(task: Task) -> dict[str, Any]:
    outcome = _outcome(task)
    names = ("reason", "exit_code", "error", "result")
    return {"id": task.id, "status": task.status} | {name: getattr(outcome, name) for name in names}


def _outcome(task: Task) -> Outcome:
    """How it ended; a task that was cancelled while it waited has no more to tell than that."""
    return task.outcome or Outcome(status=task.status, reason=task.status)
