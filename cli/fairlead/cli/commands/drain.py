"""fairlead drain."""

from fairlead.base.durations import parse_duration
from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.commands.wait import TimeIsUpError
from fairlead.cli.output import print_json
from fairlead.cli.waiting import wait_until


def main(words: list[str]) -> int:
    """Pause everything and wait until nothing runs."""
    made = parser(
        "drain",
        "Start nothing more and wait until what runs has ended, before an upgrade or a reboot."
        " `fairlead resume` goes on.",
        ["fairlead drain", "fairlead drain --timeout 1h && systemctl reboot"],
    )
    made.add_argument(
        "--timeout", type=parse_duration, help="give up after this long, with exit code 6; the pause stays"
    )
    args = made.parse_args(words)
    access = Access()
    access.operations().pause("all", by=who(), reason="draining")
    if not wait_until(access.paths.bells, "drain", lambda: access.store.count_active() == 0, args.timeout):
        raise TimeIsUpError(f"{access.store.count_active()} tasks still run; `fairlead status` shows them.")
    if args.json:
        print_json({"drained": True})
    else:
        print("nothing runs; `fairlead resume` goes on")
    return 0
