"""`fairlead status` as a person types it, against an interpreter that does nothing."""

import os
import sys
from collections.abc import Iterator
from functools import partial

from bench.figures import Figure, at_most, ms
from bench.long_queue import long_queue
from bench.measuring import environment, in_turn, run_program
from bench.plan import Plan

_INSTALLED = os.path.join(os.path.dirname(sys.executable), "fairlead")
FAIRLEAD = (_INSTALLED,) if os.path.exists(_INSTALLED) else (sys.executable, "-m", "fairlead.cli.main")


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    for name, count, users in (("empty", 0, 0), ("many", plan.many, 1000)):
        yield _figure(plan, os.path.join(plan.place, name), count, users)


def _figure(plan: Plan, home: str, count: int, users: int) -> Figure:
    # As beside a daemon, the store is open: whoever closes it as the last one has more to do.
    store, _ = long_queue(home, count, users)
    env = environment(plan.place, FAIRLEAD_HOME=home)
    programs = [partial(run_program, argv, env) for argv in ((*FAIRLEAD, "status"), (sys.executable, "-c", "pass"))]
    in_turn(1, *programs)
    took, baseline = in_turn(max(3, plan.rounds // 3), *programs)
    store.close()
    return Figure(
        what=f"fairlead status, {count:,} pending",
        measured=ms(took),
        against=f"{ms(baseline)}: python -c pass",
        ratio=took / baseline,
        target=at_most(took / baseline, 3),
    )
