"""fairlead pause."""

from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.queue.operations import SCOPES


def main(words: list[str]) -> int:
    """Start nothing more in a scope."""
    made = parser(
        "pause",
        "Start nothing more: everywhere, of a user, in a project. What runs goes on.",
        ["fairlead pause", "fairlead pause user:alice --reason 'her disk is full'", "fairlead pause project:website"],
    )
    made.add_argument("scope", nargs="?", default="all", help=f"{SCOPES} (all)")
    made.add_argument("--reason", default="", help="shown to whoever asks why")
    args = made.parse_args(words)
    Access().operations().pause(args.scope, by=who(), reason=args.reason)
    if args.json:
        print_json({"paused": args.scope})
    else:
        print(f"paused: {args.scope}; `fairlead resume {args.scope}` goes on")
    return 0
