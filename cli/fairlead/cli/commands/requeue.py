"""fairlead requeue."""

from fairlead.cli.access import changing
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_id
from fairlead.cli.output import say
from fairlead.cli.waiting import tell_of_stopped, wait_until
from fairlead.queue.states import ACTIVE

#: How long the watchdog gets to find out what became of a run.
PATIENCE = 10.0


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "requeue",
        "Bring a task back into the queue that seems stuck. Its run is looked at first; a living one is left alone.",
        ["fairlead requeue ID"],
    )
    add_id(made)
    return made


def main(words: list[str]) -> int:
    """Bring a stuck task back into the queue, on evidence."""
    args = make_parser().parse_args(words)
    with changing() as desk:
        if desk.look_at_run(args.id):
            tell_of_stopped(desk, "watchdog")
            wait_until(desk, "requeue", lambda: desk.find(args.id)["status"] not in ACTIVE, PATIENCE)
        done = desk.requeue(args.id)
    again = "" if done["was"] == done["status"] else " again"
    say({name: done[name] for name in ("id", "status")}, f"{done['id']} is queued{again}", as_json=args.json)
    return 0
