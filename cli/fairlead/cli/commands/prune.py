"""fairlead prune."""

from fairlead.base.text import one_line
from fairlead.cli.access import open_instance, own_paths
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import duration
from fairlead.cli.output import say
from fairlead.cli.quick import open_connection
from fairlead.watchdog.retention import Pruned, Retention

_DAY = 86400.0


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "prune",
        "Delete records, run directories and refused files older than `retention.days`. The watchdog does it hourly.",
        ["fairlead prune --dry-run", "fairlead prune --older-than 7d"],
    )
    made.add_argument("--older-than", metavar="TIME", type=duration, help="instead of retention.days")
    made.add_argument("--dry-run", action="store_true", help="only tell")
    return made


def main(words: list[str]) -> int:
    """Delete what is old and provably safe to delete."""
    args = make_parser().parse_args(words)
    open_connection(own_paths()).close()  # where there is no queue, none is made
    instance = open_instance()
    days = None if args.older_than is None else args.older_than / _DAY
    report = Retention(instance).prune(days, dry_run=args.dry_run)
    instance.close()
    data = {"dry_run": report.dry_run, "deleted": report.deleted, "kept": report.kept}
    say(data, _text(report), as_json=args.json)
    return 0


def _text(report: Pruned) -> str:
    verb = "would delete" if report.dry_run else "deleted"
    lines = [f"{verb} {kind.replace('_', ' ')}: {count}" for kind, count in report.deleted.items()]
    lines += [one_line(f"kept {path}: {why}", 500) for path, why in report.kept]
    return "\n".join(lines or [f"{verb} nothing"])
