"""fairlead rebuild."""

import os

from fairlead.base.errors import RefusedError
from fairlead.base.logs import open_log
from fairlead.base.service import AlreadyRunningError
from fairlead.base.text import one_line
from fairlead.cli.access import own_paths
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import say
from fairlead.watchdog.rebuild import Rebuild, Rebuilt


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "rebuild",
        "Make a new store from accepted files, run directories and archive, while daemon and watchdog are stopped."
        " Agents that run go on; the watchdog finds them again. Exits with 1 if a file could not be read.",
        ["fairlead rebuild", "fairlead rebuild --replace"],
    )
    made.add_argument("--replace", action="store_true", help="put a store that is there aside, then rebuild")
    return made


def main(words: list[str]) -> int:
    """Make a new store from the files."""
    args = make_parser().parse_args(words)
    paths = own_paths()
    try:
        report = Rebuild(paths, os.environ, open_log(paths.log_file, "rebuild")).run(replace=args.replace)
    except AlreadyRunningError as error:
        raise RefusedError(f"{error.fact}. Stop both services, then rebuild.") from error
    data = {"restored": report.restored, "unreadable": report.unreadable, "aside": report.aside}
    say(data, _text(report), as_json=args.json)
    return 1 if report.unreadable else 0


def _text(report: Rebuilt) -> str:
    lines = ["restored: " + (", ".join(f"{count} {what}" for what, count in report.restored.items()) or "nothing")]
    lines += [f"the old store is at {report.aside}"] if report.aside else []
    unread = [one_line(f"{path}: {why}", 500) for path, why in report.unreadable]
    lines += [f"could not be read and was left where it is: {one}" for one in unread]
    return "\n".join(lines)
