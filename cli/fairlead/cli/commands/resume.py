"""fairlead resume."""

from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.queue.operations import SCOPES


def main(words: list[str]) -> int:
    """Go on after a pause."""
    made = parser("resume", "Go on after a pause.", ["fairlead resume", "fairlead resume user:alice"])
    made.add_argument("scope", nargs="?", default="all", help=f"{SCOPES} (all)")
    args = made.parse_args(words)
    was_paused = Access().operations().resume(args.scope, by=who())
    if args.json:
        print_json({"resumed": args.scope, "was_paused": was_paused})
    else:
        print(f"{args.scope} goes on" if was_paused else f"{args.scope} was not paused")
    return 0
