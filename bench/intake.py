"""Files dropped all at once: how fast they become tasks, durably, and what that would be with a commit for each.

The daemon runs and nothing may start, so that only the intake is measured. It ends when the store knows every task.
"""

import os
from collections.abc import Iterator

from bench.figures import Figure, Target, per_second
from bench.instance import running
from bench.measuring import NOTHING, seconds
from bench.plan import Plan

RATE = 2000
TIMES = 10


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    rate = _rate(os.path.join(plan.place, "intake"), plan.files, batch=500)
    single = _rate(os.path.join(plan.place, "intake-1"), plan.single_files, batch=1)
    yield Figure(
        what=f"intake of {plan.files:,} dropped files",
        measured=per_second(rate),
        against=f"{per_second(single)}: a commit for each",
        ratio=rate / single,
        target=Target(f"{RATE:,}/s or {TIMES} x", rate >= RATE or rate >= TIMES * single),
    )


def _rate(home: str, count: int, batch: int) -> float:
    with running(home, batch=batch) as instance:
        instance.pause()
        paths = [instance.write(f"task-{number}.json", f"user{number % 20}", [NOTHING]) for number in range(count)]

        def drop_all() -> None:
            for path in paths:
                instance.drop(path)
            instance.wait_pending(count)

        return count / seconds(drop_all)
