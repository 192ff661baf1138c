"""fairlead simulate."""

import os

import msgspec

from fairlead.base.durations import parse_duration, show_duration
from fairlead.base.errors import UsageError
from fairlead.base.ids import check_name
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import positive, whole
from fairlead.cli.output import say, table
from fairlead.config.loading import load
from fairlead.config.paths import find_paths
from fairlead.queue.simulate import Report, Simulation, Source, imagine

#: More imagined tasks than this take minutes and gigabytes.
MOST_TASKS = 100_000
_HEADERS = ("user", "tasks", "time held", "mean wait", "longest wait", "longest task")
_PARTS = (3, 4)


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "simulate",
        "Play an imagined load through the fair-share decision with the settings in force. A load is"
        " USER:TASKS:LENGTH with the mean length of a task, or USER:TASKS:LENGTH:GAP with the mean time between two"
        " arrivals.",
        ["fairlead simulate alice:500:10m bob:20:30m:1h --slots 2"],
    )
    made.add_argument("loads", metavar="LOAD", nargs="+", help="USER:TASKS:LENGTH[:GAP]")
    made.add_argument("--slots", metavar="N", type=positive, help="instead of slots.max")
    made.add_argument("--seed", metavar="N", type=whole, default=1, help="the same seed gives the same load (1)")
    return made


def main(words: list[str]) -> int:
    """Play an imagined load through the real decision."""
    args = make_parser().parse_args(words)
    sources = [_source(text) for text in args.loads]
    if sum(source.tasks for source in sources) > MOST_TASKS:
        raise UsageError(f"that is too much to imagine: at most {MOST_TASKS} tasks.")
    config = load(find_paths(), os.environ).config
    jobs = imagine(sources, args.seed)
    report = Simulation(jobs, share=config.fair_share, slots=args.slots or config.slots.max).run()
    say(msgspec.to_builtins(report), _text(report), as_json=args.json)
    return 0


def _source(text: str) -> Source:
    user, *rest = parts = text.split(":")
    if len(parts) not in _PARTS or not (rest[0].isascii() and rest[0].isdigit()):
        raise UsageError(
            f"{text!r} is not a load: write USER:TASKS:LENGTH or USER:TASKS:LENGTH:GAP, like alice:20:10m."
        )
    length, gap = (parse_duration(word) for word in (*rest[1:], "0")[:2])
    if not length or rest[0] == "0":
        raise UsageError(f"{text!r} is not a load: there must be at least one task, and it must take some time.")
    return Source(user=check_name(user, "user"), tasks=int(rest[0]), length=length, gap=gap)


def _text(report: Report) -> str:
    rows = [
        (one.user, one.tasks, *map(show_duration, (one.service, one.mean_wait, one.max_wait, one.longest)))
        for one in report.users
    ]
    behind = show_duration(report.drift.behind)
    return (
        f"{table(_HEADERS, rows)}\n"
        f"all of it takes {show_duration(report.seconds)}; nobody who waited was ever more than {behind} (per weight)"
        " behind anybody"
    )
