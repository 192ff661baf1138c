"""fairlead drain."""

from fairlead.base.errors import UnavailableError
from fairlead.cli.access import Access, Changing, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_timeout
from fairlead.cli.output import counted, say
from fairlead.cli.waiting import tell_of_stopped, wait_until


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
    with Changing() as changing:
        changing.operations().pause("all", by=who(), reason="draining")
    access = Access()
    if access.store.count_active():
        tell_of_stopped(access.paths, "watchdog")
    if not wait_until(access.paths.bells, "drain", lambda: access.store.count_active() == 0, args.timeout):
        left = counted(access.store.count_active(), "task")
        raise StillRunningError(
            f"not ended in time: {left}; `fairlead status` shows them, nothing new starts; `fairlead resume` goes on."
        )
    say({"drained": True}, "nothing runs; `fairlead resume` goes on", as_json=args.json)
    return 0
