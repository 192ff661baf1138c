"""Taking, asking for and freeing a user's lock: the row, and the files that show it.

Once where nobody else is there, and once where a thousand users hold their locks and a hundred thousand tasks wait,
some of them behind the lock that is measured. The two take turns.
"""

import os
from collections.abc import Iterator
from statistics import median

from bench.figures import Figure, Target, at_most, ms
from bench.long_queue import long_queue
from bench.measuring import seconds
from bench.plan import Plan
from bench.writing import committing
from fairlead.base.clock import SystemClock
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager

#: Seconds that each of the three may take.
LONGEST = 0.005
#: How much more it may cost among many.
MOST = 2
WAYS = ("take a lock", "ask for a lock", "free a lock")
#: Whose lock is measured: in the crowd he has tasks that wait.
USER = "user0000"


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    alone = _manager(os.path.join(plan.place, "locking"), 0, users=1)
    crowded = _manager(os.path.join(plan.place, "crowd"), plan.crowd, users=plan.holders + 1)
    for number in range(1, plan.holders + 1):
        crowded.acquire(f"user{number:04}", "bench", timeout=0)
    commit = committing(os.path.join(plan.place, "locking", "commits.db"))
    times = [(*_cycle(alone), *_cycle(crowded), seconds(commit)) for _ in range(plan.rounds)]
    *took, baseline = (median(column) for column in zip(*times, strict=True))
    for what, one in zip(WAYS, took[:3], strict=True):
        yield Figure(
            what=what,
            measured=ms(one),
            against=f"{ms(baseline)}: a commit",
            ratio=one / baseline,
            target=Target(f"below {ms(LONGEST)}", one < LONGEST),
        )
    for what, one, single in zip(WAYS, took[3:], took[:3], strict=True):
        yield Figure(
            what=f"{what}, {plan.holders:,} others held, {plan.crowd:,} pending",
            measured=ms(one),
            against=f"{ms(single)}: none",
            ratio=one / single,
            target=at_most(one / single, MOST),
        )


def _manager(place: str, pending: int, users: int) -> LockManager:
    store, _ = long_queue(place, pending, users)
    locks, bells = os.path.join(place, "locks"), os.path.join(place, "bells")
    os.makedirs(locks)
    os.makedirs(bells)
    return LockManager(store, LockFiles(locks), SystemClock(), bells, lease=3600.0)


def _cycle(manager: LockManager) -> tuple[float, float, float]:
    taken = []
    take = seconds(lambda: taken.append(manager.acquire(USER, "bench", timeout=0)))
    ask = seconds(lambda: manager.is_locked(USER))
    [lock] = taken
    if lock is None:
        raise RuntimeError("the lock was not free")
    return take, ask, seconds(lambda: manager.release(USER, lock.lock_id))
