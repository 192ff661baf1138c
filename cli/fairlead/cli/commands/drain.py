"""fairlead drain."""

from fairlead.base.errors import UnavailableError
from fairlead.cli.access import changing, reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_timeout
from fairlead.cli.output import counted, say
from fairlead.cli.waiting import tell_of_stopped, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


class StillRunningError(UnavailableError):
    """Something still runs."""


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "drain",
        "Start nothing more and wait until what runs has ended, before an upgrade or a reboot."
        " The pause stays, however this ends; `fairlead resume` goes on.",
        ["fairlead drain", "fairlead drain --timeout 1h && systemctl reboot"],
    )
    add_timeout(made, "give up after this long, with exit code 6; the pause stays")
    return made


def main(words: list[str]) -> int:
    """Pause everything and wait until nothing runs."""
    args = make_parser().parse_args(words)
    with changing() as desk:
        desk.pause("all", "draining")
    desk = reading()
    if _running(desk):
        tell_of_stopped(desk, "watchdog")
    if not wait_until(desk, "drain", lambda: _running(desk) == 0, args.timeout):
        left = counted(_running(desk), "task")
        raise StillRunningError(
            f"not ended in time: {left}; `fairlead status` shows them, nothing new starts; `fairlead resume` goes on."
        )
    say({"drained": True}, "nothing runs; `fairlead resume` goes on", as_json=args.json)
    return 0


def _running(desk: "AnyDesk") -> int:
    used: int = desk.capacity()["slots"]["used"]
    return used
