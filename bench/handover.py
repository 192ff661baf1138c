"""From the end of a task to the start of the same user's next one, which waits for it.

The agents are `date`, as in `starting`: it ends as soon as it has told the time, so the time between two stamps is the
time between an end and a start, and a little more.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from bench.figures import Figure, at_most, ms
from bench.instance import running
from bench.measuring import in_turn, spawn_nothing
from bench.plan import Plan
from bench.starting import STAMP, stamps


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    with running(os.path.join(plan.place, "handover")) as instance:
        instance.pause()
        for number in range(plan.rounds):
            instance.drop(instance.write(f"stamp-{number}.json", "ann", STAMP))
        instance.wait_pending(plan.rounds)
        [before] = in_turn(plan.rounds, spawn_nothing)
        instance.resume()
        instance.wait_finished(plan.rounds)
        instance.wait_archived()
        [after] = in_turn(plan.rounds, spawn_nothing)
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(stamps(instance))]
    took, baseline = median(gaps), (before + after) / 2
    yield Figure(
        what="end of a task to start of the user's next",
        measured=ms(took),
        against=f"{ms(baseline)}: spawn and wait",
        ratio=took / baseline,
        target=at_most(took / baseline, 20),
    )
