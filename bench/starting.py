"""From a dropped file to its agent's start, when nothing else is going on.

The agent is `date`: the first thing it does is to read the clock, and what it prints is in its log. The moment before
is taken right before the file is renamed into the spool.
"""

import os
import time
from collections.abc import Iterator
from statistics import median

from bench.figures import Figure, at_most, ms
from bench.instance import Running, running
from bench.measuring import seconds, spawn_nothing
from bench.plan import Plan
from fairlead.conductor.output import STDOUT

STAMP = ("/bin/date", "+%s%N")


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    with running(os.path.join(plan.place, "starting")) as instance:
        pairs = [(_start(instance, number), seconds(spawn_nothing)) for number in range(plan.rounds)]
    took, baseline = (median(column) for column in zip(*pairs, strict=True))
    yield Figure(
        what="dropped file to agent's start, idle",
        measured=ms(took),
        against=f"{ms(baseline)}: spawn and wait",
        ratio=took / baseline,
        target=at_most(took / baseline, 20),
    )


def _start(instance: Running, number: int) -> float:
    """Seconds from the rename to the agent's own stamp."""
    path = instance.write(f"stamp-{number}.json", "ann", STAMP)
    before = time.time_ns()
    instance.drop(path)
    instance.wait_finished(number + 1)
    instance.wait_archived()
    return (stamps(instance)[-1] - before) / 1e9


def stamps(instance: Running) -> list[int]:
    """What the agents of all finished runs printed, in order."""
    place = os.path.join(instance.paths.conductor, "default", "finished")
    return sorted(_stamp(os.path.join(place, name)) for name in os.listdir(place))


def _stamp(run_dir: str) -> int:
    with open(os.path.join(run_dir, STDOUT), encoding="ascii") as file:
        return int(file.read())
