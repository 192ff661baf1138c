"""fairlead prune."""

from fairlead.base.durations import parse_duration
from fairlead.cli.access import open_instance
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.watchdog.retention import Retention

_DAY = 86400.0


def main(words: list[str]) -> int:
    """Delete what is old and provably safe to delete."""
    made = parser(
        "prune",
        "Delete records, run directories and refused files older than `retention.days`. The watchdog does it hourly.",
        ["fairlead prune --dry-run", "fairlead prune --older-than 7d"],
    )
    made.add_argument("--older-than", type=parse_duration, help="instead of retention.days")
    made.add_argument("--dry-run", action="store_true", help="only tell")
    args = made.parse_args(words)
    instance = open_instance()
    days = None if args.older_than is None else args.older_than / _DAY
    report = Retention(instance).prune(days, dry_run=args.dry_run)
    instance.close()
    if args.json:
        print_json({"dry_run": report.dry_run, "deleted": report.deleted, "kept": report.kept})
        return 0
    verb = "would delete" if args.dry_run else "deleted"
    print(
        "\n".join(f"{verb} {count} {kind.replace('_', ' ')}" for kind, count in report.deleted.items())
        or f"{verb} nothing"
    )
    for path, why in report.kept:
        print(f"kept {path}: {why}")
    return 0
