"""fairlead list."""

from fairlead.base.clock import iso
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json, print_table
from fairlead.queue.record import record_of
from fairlead.queue.states import ACTIVE, Status
from fairlead.queue.store import Filter
from fairlead.queue.task import Task

HEADERS = ("id", "status", "user", "project", "priority", "created", "title")


def main(words: list[str]) -> int:
    """Print tasks, newest first."""
    made = parser(
        "list",
        "Tasks, newest first: those that wait or run, or all.",
        ["fairlead list", "fairlead list --all --user alice", "fairlead list --status failed --json"],
    )
    made.add_argument("--all", action="store_true", help="finished tasks too")
    made.add_argument("--status", action="append", choices=list(Status), default=[], help="only these; may be repeated")
    made.add_argument("--user", help="only this user's")
    made.add_argument("--project", help="only of this project")
    made.add_argument("--limit", type=int, default=100, help="at most so many (100)")
    args = made.parse_args(words)
    statuses = frozenset(map(Status, args.status)) or (frozenset() if args.all else ACTIVE | {Status.QUEUED})
    which = Filter(statuses=statuses, user=args.user, project=args.project, limit=args.limit)
    tasks = Access().store.list_tasks(which)
    if args.json:
        print_json([record_of(task, (), ()) for task in tasks])
    else:
        print_table(HEADERS, map(_row, tasks), status=1)
    return 0


def _row(task: Task) -> tuple[object, ...]:
    created = (iso(task.created_at) or "")[:19]
    return task.id, task.status, task.spec.user, task.spec.project, task.priority, created, task.spec.title
