"""Taking, asking for and freeing a user's lock: the row, and the files that show it."""

import os
from collections.abc import Iterator
from statistics import median

from bench.figures import Figure, Target, ms
from bench.measuring import seconds
from bench.plan import Plan
from bench.writing import committing
from fairlead.base.clock import SystemClock
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.sqlite.store import open_store

#: Seconds that each of the three may take.
LONGEST = 0.005


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    manager = _manager(os.path.join(plan.place, "locking"))
    commit = committing(os.path.join(plan.place, "locking", "commits.db"))
    times = [(*_cycle(manager), seconds(commit)) for _ in range(plan.rounds)]
    *took, baseline = (median(column) for column in zip(*times, strict=True))
    for what, one in zip(("take a lock", "ask for a lock", "free a lock"), took, strict=True):
        yield Figure(
            what=what,
            measured=ms(one),
            against=f"{ms(baseline)}: a commit",
            ratio=one / baseline,
            target=Target(f"below {ms(LONGEST)}", one < LONGEST),
        )


def _manager(place: str) -> LockManager:
    locks, bells = os.path.join(place, "locks"), os.path.join(place, "bells")
    os.makedirs(locks)
    os.makedirs(bells)
    store = open_store(os.path.join(place, "queue.db"))
    return LockManager(store, LockFiles(locks), SystemClock(), bells, lease=3600.0)


def _cycle(manager: LockManager) -> tuple[float, float, float]:
    taken = []
    take = seconds(lambda: taken.append(manager.acquire("ann", "bench", timeout=0)))
    ask = seconds(lambda: manager.is_locked("ann"))
    [lock] = taken
    if lock is None:
        raise RuntimeError("the lock was not free")
    return take, ask, seconds(lambda: manager.release("ann", lock.lock_id))
