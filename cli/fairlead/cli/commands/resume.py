"""fairlead resume."""

from fairlead.cli.access import changing
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
    with changing() as desk:
        done = desk.resume(args.scope)
    text = f"{args.scope} goes on" if done["was_paused"] else f"{args.scope} was not paused"
    say(done, text, as_json=args.json)
    return 0
