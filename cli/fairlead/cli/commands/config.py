"""fairlead config check|show."""

import os

from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json, print_table
from fairlead.config.loading import Settings, load
from fairlead.config.paths import find_paths
from fairlead.config.problems import ConfigError
from fairlead.config.showing import describe


def main(words: list[str]) -> int:
    """Check or show the settings."""
    made = parser(
        "config",
        "check: say what is wrong with the settings, all at once. show: every effective value and who set it.",
        ["fairlead config check", "fairlead config show", "fairlead config show --set"],
    )
    made.add_argument("what", choices=("check", "show"))
    made.add_argument("--set", action="store_true", help="with show: only what is not a default")
    args = made.parse_args(words)
    if args.what == "check":
        return _check(as_json=args.json)
    return _show(load(find_paths(), os.environ), only_set=args.set, as_json=args.json)


def _check(*, as_json: bool) -> int:
    try:
        settings = load(find_paths(), os.environ)
    except ConfigError as error:
        if not as_json:
            raise
        print_json({"ok": False, "problems": [str(problem) for problem in error.problems]})
        return error.exit_code
    if as_json:
        print_json({"ok": True, "files": settings.files})
    else:
        print("the settings are good; read: " + (", ".join(settings.files) or "no file, all defaults"))
    return 0


def _show(settings: Settings, *, only_set: bool, as_json: bool) -> int:
    rows = [row for row in describe(settings) if not only_set or row.origin != "default"]
    if as_json:
        print_json([row._asdict() for row in rows])
    else:
        print_table(("key", "value", "from"), rows)
    return 0
