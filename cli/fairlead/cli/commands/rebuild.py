"""fairlead rebuild."""

import os

from fairlead.base.logs import open_log
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.config.paths import find_paths
from fairlead.watchdog.rebuild import Rebuild


def main(words: list[str]) -> int:
    """Make a new store from the files."""
    made = parser(
        "rebuild",
        "Make a new store from accepted files, run directories and archive, while daemon and watchdog are stopped."
        " Agents that run go on; the watchdog finds them again.",
        ["fairlead rebuild", "fairlead rebuild --replace"],
    )
    made.add_argument("--replace", action="store_true", help="put a store that is there aside, then rebuild")
    args = made.parse_args(words)
    paths = find_paths()
    report = Rebuild(paths, os.environ, open_log(paths.log_file, "rebuild")).run(replace=args.replace)
    if args.json:
        print_json({"restored": report.restored, "unreadable": report.unreadable, "aside": report.aside})
    else:
        print("restored: " + (", ".join(f"{count} {what}" for what, count in report.restored.items()) or "nothing"))
        if report.aside:
            print(f"the old store is at {report.aside}")
        for path, why in report.unreadable:
            print(f"could not be read and was left where it is: {path}: {why}")
    return 1 if report.unreadable else 0
