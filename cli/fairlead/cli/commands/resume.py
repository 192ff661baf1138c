"""fairlead resume."""

from fairlead.cli.access import Changing, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import say
from fairlead.queue.operations import SCOPES


def make_parser() -> Parser:
    """What it takes."""
    made = parser("resume", "Go on after a pause.", ["fairlead resume", "fairlead resume user:alice"])
    made.add_argument("scope", metavar="SCOPE", nargs="?", default="all", help=f"{SCOPES} (all)")
    return made


def main(words: list[str]) -> int:
    """Go on after a pause."""
    args = make_parser().parse_args(words)
    with Changing() as access:
        was_paused = access.operations().resume(args.scope, by=who())
    text = f"{args.scope} goes on" if was_paused else f"{args.scope} was not paused"
    say({"resumed": args.scope, "was_paused": was_paused}, text, as_json=args.json)
    return 0
