"""fairlead events."""

import select
from typing import Any

from fairlead.base.clock import iso
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import paint, print_json_line
from fairlead.cli.waiting import LOOK_AGAIN, listening
from fairlead.queue.task import Event

_QUIET = ("evidence", "token", "source")


def main(words: list[str]) -> int:
    """Print what happened."""
    made = parser(
        "events",
        "What happened, in order; with -f as it happens. --json prints one JSON object per line.",
        ["fairlead events", "fairlead events -f", "fairlead events --task ID --json"],
    )
    made.add_argument("-f", "--follow", action="store_true", help="go on with what happens from now on")
    made.add_argument("--task", metavar="ID", help="only of this task")
    made.add_argument("--last", type=int, default=50, help="begin with so many of the last ones (50)")
    args = made.parse_args(words)
    access = Access()
    task_id = access.task(args.task).id if args.task else None
    after = 0 if task_id else max(0, access.store.last_event() - args.last)
    after = print_events(access, after, task_id, as_json=args.json)
    if args.follow:
        follow(access, after, task_id, as_json=args.json)
    return 0


def follow(access: Access, after: int, task_id: str | None, *, as_json: bool) -> None:
    """Print events as they happen, until interrupted."""
    with listening(access.paths.bells, "events") as listener:
        while True:
            after = print_events(access, after, task_id, as_json=as_json)
            select.select([listener], [], [], LOOK_AGAIN)
            listener.take()


def print_events(access: Access, after: int, task_id: str | None, *, as_json: bool) -> int:
    """Print what came after that number; returns the last number."""
    while events := access.store.events(task_id=task_id, after=after):
        for event in events:
            if as_json:
                print_json_line(_plain(event))
            else:
                print(readable(event), flush=True)
        after = events[-1].seq
    return after


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


def readable(event: Event) -> str:
    """One line for people."""
    rest = " ".join(
        f"{key}={value}" for key, value in event.detail.items() if key not in _QUIET and value not in ("", None)
    )
    who = " ".join(word for word in (event.task_id, event.user) if word)
    moment = (iso(event.at) or "")[11:19]
    return f"{moment} {paint(event.event, f'{event.event:<16}')} {one_line(f'{who} {rest}', 300)}".rstrip()
