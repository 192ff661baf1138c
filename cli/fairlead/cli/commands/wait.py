"""fairlead wait."""

from collections.abc import Sequence

from fairlead.base.durations import parse_duration
from fairlead.base.errors import UnavailableError
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.cli.waiting import wait_until
from fairlead.queue.states import FINAL, Status
from fairlead.queue.task import Task


class TimeIsUpError(UnavailableError):
    """The tasks have not ended in time."""


def main(words: list[str]) -> int:
    """Wait until tasks have ended; 0 only if all completed."""
    made = parser(
        "wait",
        "Wait until tasks have ended. Exits with 0 if all completed, with 1 if one did not.",
        ["fairlead wait ID", "fairlead wait ID1 ID2 --timeout 1h"],
    )
    made.add_argument("ids", metavar="ID", nargs="+", help="the task's id, or enough of it")
    made.add_argument("--timeout", type=parse_duration, help="give up after this long, with exit code 6")
    args = made.parse_args(words)
    access = Access()
    ids = [access.task(part).id for part in args.ids]
    return wait_for(access, ids, timeout=args.timeout, json=args.json)


def wait_for(access: Access, ids: Sequence[str], *, timeout: float | None, json: bool) -> int:
    """Wait for these tasks and tell how they ended."""
    ended: dict[str, Task] = {}

    def all_ended() -> bool:
        for task_id in ids:
            if task_id not in ended and (task := access.task(task_id)).status in FINAL:
                ended[task_id] = task
                _tell(task, json=json)
        return len(ended) == len(set(ids))

    if not wait_until(access.paths.bells, "wait", all_ended, timeout):
        left = [task_id for task_id in ids if task_id not in ended]
        raise TimeIsUpError(f"not ended in time: {', '.join(left)}; `fairlead why {left[0]}` says why.")
    if json:
        print_json(
            [{"id": task_id, "status": ended[task_id].status, "error": _error(ended[task_id])} for task_id in ids]
        )
    return 0 if all(task.status is Status.COMPLETED for task in ended.values()) else 1


def _tell(task: Task, *, json: bool) -> None:
    if not json:
        error = _error(task)
        print(f"{task.id} {task.status}" + (f": {one_line(error, 500)}" if error else ""), flush=True)


def _error(task: Task) -> str:
    return task.outcome.error if task.outcome else ""
