"""fairlead simulate."""

import os

import msgspec

from fairlead.base.durations import parse_duration, show_duration
from fairlead.base.errors import UsageError
from fairlead.base.ids import check_name
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json, print_table
from fairlead.config.loading import load
from fairlead.config.paths import find_paths
from fairlead.queue.simulate import Report, Simulation, Source, imagine

_PARTS = 4


def main(words: list[str]) -> int:
    """Play an imagined load through the real decision."""
    made = parser(
        "simulate",
        "Play an imagined load through the fair-share decision with the settings in force. A load is"
        " USER:TASKS:LENGTH, or USER:TASKS:LENGTH:GAP with the mean time between two arrivals.",
        ["fairlead simulate alice:500:10m bob:20:30m:1h --slots 2"],
    )
    made.add_argument("loads", metavar="LOAD", nargs="+", help="USER:TASKS:LENGTH[:GAP]")
    made.add_argument("--slots", type=int, help="instead of slots.max")
    made.add_argument("--seed", type=int, default=1, help="the same seed gives the same load (1)")
    args = made.parse_args(words)
    config = load(find_paths(), os.environ).config
    jobs = imagine(map(_source, args.loads), args.seed)
    report = Simulation(jobs, share=config.fair_share, slots=args.slots or config.slots.max).run()
    if args.json:
        print_json(msgspec.to_builtins(report))
    else:
        _print(report)
    return 0


def _source(text: str) -> Source:
    parts = text.split(":")
    if not _PARTS - 1 <= len(parts) <= _PARTS or not parts[1].isdigit():
        raise UsageError(
            f"{text!r} is not a load: write USER:TASKS:LENGTH or USER:TASKS:LENGTH:GAP, like alice:20:10m."
        )
    gap = parse_duration(parts[3]) if len(parts) == _PARTS else 0.0
    user = check_name(parts[0], "user")
    return Source(user=user, tasks=int(parts[1]), length=parse_duration(parts[2]), gap=gap)


def _print(report: Report) -> None:
    rows = [
        (one.user, one.tasks, *map(show_duration, (one.service, one.mean_wait, one.max_wait, one.longest)))
        for one in report.users
    ]
    print_table(("user", "tasks", "time held", "mean wait", "longest wait", "longest task"), rows)
    print(f"it takes {show_duration(report.seconds)}; nobody who waited was more than")
    print(f"{show_duration(report.drift.behind)} per weight behind anybody")
