"""fairlead pause."""

from fairlead.cli.access import changing
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import say
from fairlead.queue.operations import SCOPES


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "pause",
        "Start nothing more: everywhere, of a user, in a project. What runs goes on.",
        ["fairlead pause", "fairlead pause user:alice --reason 'her disk is full'", "fairlead pause project:website"],
    )
    made.add_argument("scope", metavar="SCOPE", nargs="?", default="all", help=f"{SCOPES} (all)")
    made.add_argument("--reason", metavar="TEXT", default="", help="shown to whoever asks why")
    return made


def main(words: list[str]) -> int:
    """Start nothing more in a scope."""
    args = make_parser().parse_args(words)
    with changing() as desk:
        done = desk.pause(args.scope, args.reason)
    say(done, f"paused: {args.scope}; `fairlead resume {args.scope}` goes on", as_json=args.json)
    return 0
