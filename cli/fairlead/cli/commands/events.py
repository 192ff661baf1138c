"""fairlead events."""

from typing import Any

from fairlead.base.clock import SystemClock, moment
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.eventlines import line
from fairlead.cli.options import whole
from fairlead.cli.output import print_json_line
from fairlead.cli.waiting import follow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


_LAST = 50


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "events",
        "What happened, in order; with -f as it happens. What did not happen today has its date. --json prints one JSON"
        " object per line.",
        ["fairlead events", "fairlead events -f", "fairlead events --task ID --json"],
    )
    made.add_argument("-f", "--follow", action="store_true", help="go on with what happens from now on")
    made.add_argument("--task", metavar="ID", help="only of this task")
    made.add_argument(
        "--last", metavar="N", type=whole, help=f"begin with so many of the last ones ({_LAST}; of a task all)"
    )
    return made


def main(words: list[str]) -> int:
    """Print what happened."""
    args = make_parser().parse_args(words)
    desk = reading()
    task_id = desk.find(args.task)["id"] if args.task else None
    stream = Stream(desk, _begin(desk, task_id, args.last), task_id, as_json=args.json)
    if args.follow:
        follow(desk, "events", stream.print_new)
    else:
        stream.print_new()
    return 0


def _begin(desk: "AnyDesk", task_id: str | None, last: int | None) -> int:
    """The number of the event before the first that is wanted."""
    if task_id is not None and last is None:
        return 0
    return desk.event_before(_LAST if last is None else last, task_id)


class Stream:
    """Events from a number on, printed as far as they have come."""

    def __init__(self, desk: "AnyDesk", after: int, task_id: str | None = None, *, as_json: bool = False) -> None:
        self._desk = desk
        self._clock = SystemClock()
        self._after = after
        self._task_id = task_id
        self._as_json = as_json

    def print_new(self) -> bool:
        """Print what has come since the last time; there may always be more."""
        while events := self._desk.events(self._after, task=self._task_id):
            for event in events:
                self._print(event)
            self._after = events[-1]["seq"]
        return True

    def _print(self, event: dict[str, Any]) -> None:
        if self._as_json:
            print_json_line(_plain(event))
        else:
            print(f"{self._date(event)}{line(event)}", flush=True)

    def _date(self, event: dict[str, Any]) -> str:
        """The date of what did not happen today; a time alone would be taken for one of today."""
        date: str = event["timestamp"][:10]
        return "" if date == moment(self._clock.wall_ms())[:10] else f"{date} "


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    """The details beside the rest, where they mean nothing else."""
    told = {key: value for key, value in event["detail"].items() if key not in ("seq", "event", "status")}
    return {key: value for key, value in event.items() if key not in ("title", "detail")} | told
