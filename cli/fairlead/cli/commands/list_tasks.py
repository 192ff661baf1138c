"""fairlead list."""

from typing import Any

from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import positive
from fairlead.cli.output import say, table
from fairlead.queue.record import record_of
from fairlead.queue.states import ACTIVE, Status
from fairlead.queue.store import Filter
from fairlead.queue.task import Task

HEADERS = ("id", "status", "user", "project", "priority", "title")


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "list",
        "Tasks, newest first: those that wait or run, or all. An id begins with the time at which its task was made.",
        ["fairlead list", "fairlead list --all --user alice", "fairlead list --status failed --json"],
    )
    made.add_argument("--all", action="store_true", help="finished tasks too")
    statuses = [status.value for status in Status]
    which = f"only these, may be repeated: {', '.join(statuses)}"
    made.add_argument("--status", metavar="STATUS", action="append", choices=statuses, default=[], help=which)
    made.add_argument("--user", metavar="NAME", help="only this user's")
    made.add_argument("--project", metavar="NAME", help="only of this project")
    made.add_argument("--limit", metavar="N", type=positive, default=100, help="at most so many (100)")
    return made


def main(words: list[str]) -> int:
    """Print tasks, newest first."""
    args = make_parser().parse_args(words)
    statuses = frozenset(map(Status, args.status)) or (frozenset() if args.all else ACTIVE | {Status.QUEUED})
    which = Filter(statuses=statuses, user=args.user, project=args.project, limit=args.limit)
    tasks = Access().store.list_tasks(which)
    text = table(HEADERS, map(_row, tasks), status=1) if tasks else _nothing(which)
    say([_plain(task) for task in tasks], text, as_json=args.json)
    return 0


def _nothing(which: Filter) -> str:
    if which == Filter(statuses=ACTIVE | {Status.QUEUED}, limit=which.limit):
        return "nothing waits or runs; `fairlead list --all` shows finished tasks"
    return "there is no such task"


def _row(task: Task) -> tuple[object, ...]:
    return task.id, task.status, task.spec.user, task.spec.project, task.priority, task.spec.title


def _plain(task: Task) -> dict[str, Any]:
    """The record without attempts and events, which `show` has."""
    return {key: value for key, value in record_of(task, (), ()).items() if key not in ("attempts", "events")}
