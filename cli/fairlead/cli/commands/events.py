"""fairlead events."""

from typing import Any

from fairlead.base.clock import iso, moment
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.eventlines import EventLines
from fairlead.cli.options import whole
from fairlead.cli.output import print_json_line
from fairlead.cli.waiting import follow
from fairlead.queue.task import Event

_LAST = 50
#: More events than this no task has.
_MANY = 1_000_000


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
    access = Access()
    task_id = access.task(args.task).id if args.task else None
    stream = Stream(access, _begin(access, task_id, args.last), task_id, as_json=args.json)
    if args.follow:
        follow(access.paths.bells, "events", stream.print_new)
    else:
        stream.print_new()
    return 0


def _begin(access: Access, task_id: str | None, last: int | None) -> int:
    """The number of the event before the first that is wanted."""
    if task_id is None:
        return max(0, access.store.last_event() - (_LAST if last is None else last))
    numbers = [event.seq for event in access.store.events(task_id=task_id, limit=_MANY)]
    return 0 if last is None or last >= len(numbers) else numbers[-last - 1]


class Stream:
    """Events from a number on, printed as far as they have come."""

    def __init__(self, access: Access, after: int, task_id: str | None = None, *, as_json: bool = False) -> None:
        self._store = access.store
        self._clock = access.clock
        self._lines = EventLines(access.store)
        self._after = after
        self._task_id = task_id
        self._as_json = as_json

    def print_new(self) -> bool:
        """Print what has come since the last time; there may always be more."""
        while events := self._store.events(task_id=self._task_id, after=self._after):
            for event in events:
                self._print(event)
            self._after = events[-1].seq
        return True

    def _print(self, event: Event) -> None:
        if self._as_json:
            print_json_line(_plain(event))
        else:
            print(f"{self._date(event)}{self._lines.line(event)}", flush=True)

    def _date(self, event: Event) -> str:
        """The date of what did not happen today; a time alone would be taken for one of today."""
        date = moment(event.at)[:10]
        return "" if date == moment(self._clock.wall_ms())[:10] else f"{date} "


def _plain(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "timestamp": iso(event.at),
        "event": event.event,
        "status": event.status,
        "task_id": event.task_id,
        "user": event.user,
        **{key: value for key, value in event.detail.items() if key not in ("seq", "event", "status")},
    }
