"""fairlead config check|show."""

import json
import os

from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import print_json, say, table
from fairlead.config.loading import Settings, load
from fairlead.config.paths import find_paths
from fairlead.config.problems import ConfigError
from fairlead.config.showing import describe


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "config",
        "check: say what is wrong with the settings, all at once. show: every effective value and who set it.",
        ["fairlead config check", "fairlead config show", "fairlead config show --set"],
    )
    made.add_argument("what", metavar="check|show", choices=("check", "show"), help="look for mistakes, or show values")
    made.add_argument("--set", action="store_true", help="with show: only what is not a default")
    return made


def main(words: list[str]) -> int:
    """Check or show the settings."""
    args = make_parser().parse_args(words)
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
    text = "the settings are good; read: " + (", ".join(settings.files) or "no file, all defaults")
    say({"ok": True, "files": settings.files}, text, as_json=as_json)
    return 0


def _show(settings: Settings, *, only_set: bool, as_json: bool) -> int:
    rows = [row for row in describe(settings) if not only_set or row.origin != "default"]
    shown = [(row.key, row.origin, _value(row.value)) for row in rows]
    text = table(("key", "from", "value"), shown) if rows else "nothing is set; all values are defaults"
    say([row._asdict() for row in rows], text, as_json=as_json)
    return 0


def _value(value: object) -> str:
    """As YAML would read it back."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
