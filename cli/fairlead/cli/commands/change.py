"""fairlead change."""

from fairlead.base.errors import UsageError
from fairlead.cli.access import changing
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.documents import number
from fairlead.cli.options import add_id, whole
from fairlead.cli.output import note, say
from fairlead.desk.changing import KEYS


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "change",
        "Change the priority, time or title of a task that waits.",
        ["fairlead change ID --priority high", "fairlead change ID --run-at +2h", "fairlead change ID --run-at now"],
    )
    add_id(made)
    made.add_argument("--priority", metavar="WORD", help="critical, high, medium, low, or 0 (first) to 10")
    made.add_argument("--run-at", metavar="TIME", help="not before then: ISO 8601, +2h, or now")
    made.add_argument("--title", metavar="TEXT", help="what lists show")
    made.add_argument("--version", metavar="N", type=whole, help="only if the task still has this version")
    return made


def main(words: list[str]) -> int:
    """Change a waiting task."""
    args = make_parser().parse_args(words)
    given = {key: number(key, value) for key in KEYS if (value := getattr(args, key)) is not None}
    if not given:
        raise UsageError("say what to change: --priority, --run-at or --title.")
    with changing() as desk:
        data = desk.change(args.id, given, args.version)
    for one in data.pop("notes"):
        note(one)
    say(data, f"{data['id']} is changed; it has version {data['version']} now", as_json=args.json)
    return 0
