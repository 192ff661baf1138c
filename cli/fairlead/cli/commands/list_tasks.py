"""fairlead list."""

from typing import Any

from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import positive
from fairlead.cli.output import say, table
from fairlead.queue.states import ACTIVE, Status

_LIVE = ACTIVE | {Status.QUEUED}
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
    statuses = frozenset(map(Status, args.status)) or (frozenset() if args.all else _LIVE)
    tasks = reading().list_tasks(sorted(statuses), args.user, args.project, args.limit)
    is_plain = statuses == _LIVE and (args.user, args.project) == (None, None)
    text = table(HEADERS, map(_row, tasks), status=1) if tasks else _nothing(is_plain=is_plain)
    say(tasks, text, as_json=args.json)
    return 0


def _nothing(*, is_plain: bool) -> str:
    return "nothing waits or runs; `fairlead list --all` shows finished tasks" if is_plain else "there is no such task"


def _row(task: dict[str, Any]) -> tuple[object, ...]:
    """What lists show; a title is not for everybody."""
    return tuple(task.get(name) for name in HEADERS)
