"""fairlead change."""

import sys

from msgspec import UNSET

from fairlead.base.errors import UsageError
from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.queue.task import PRIORITIES, Changes
from fairlead.queue.taskfile import parse_time


def main(words: list[str]) -> int:
    """Change a waiting task."""
    made = parser(
        "change",
        "Change the priority, time or title of a task that waits.",
        ["fairlead change ID --priority high", "fairlead change ID --run-at +2h", "fairlead change ID --run-at now"],
    )
    made.add_argument("id", metavar="ID", help="the task's id, or enough of it")
    made.add_argument("--priority", choices=PRIORITIES)
    made.add_argument("--run-at", metavar="TIME", help="ISO 8601, +2h, or now")
    made.add_argument("--title")
    made.add_argument("--version", type=int, help="only if the task still has this version")
    args = made.parse_args(words)
    if args.priority is None and args.run_at is None and args.title is None:
        raise UsageError("say what to change: --priority, --run-at or --title.")
    access = Access()
    task = access.task(args.id)
    changes = Changes(
        priority=UNSET if args.priority is None else PRIORITIES.index(args.priority),
        run_at=UNSET if args.run_at is None else _time(args.run_at, access.clock.wall_ms()),
        title=UNSET if args.title is None else args.title,
    )
    changed = access.operations().change(task.id, args.version or task.version, changes, by=who())
    if args.json:
        print_json({"id": changed.id, "version": changed.version, "priority": changed.priority})
    else:
        print(f"{changed.id} is changed; it has version {changed.version} now")
    return 0


def _time(text: str, now: int) -> int | None:
    """The instant, or none for at once; how a time without a zone was read is said."""
    if text == "now":
        return None
    instant, note = parse_time(text, now)
    if note:
        print(f"fairlead: note: {note}", file=sys.stderr)
    return instant
