"""Deciding who is next and claiming that task, with a long queue and with a short one.

Each round decides, claims one task with its lock, and records its end, as daemon and watchdog would; only deciding and
claiming are timed. The two queues take turns.
"""

import os
import time
from collections.abc import Iterator
from statistics import median

from bench.figures import Figure, at_most, ms, per_second
from bench.long_queue import long_queue
from bench.measuring import seconds
from bench.plan import Plan
from fairlead.queue.decide import decide
from fairlead.queue.locks import this_holder
from fairlead.queue.sqlite.store import SqliteStore
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Ended, Terms
from fairlead.queue.task import Outcome


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    long, rate = long_queue(os.path.join(plan.place, "many"), plan.many, users=1000)
    short, short_rate = long_queue(os.path.join(plan.place, "few"), plan.few, users=100)
    yield Figure(
        what=f"entering, until {plan.many:,} are pending",
        measured=per_second(rate),
        against=f"{per_second(short_rate)}: until {plan.few:,} are",
        ratio=rate / short_rate,
    )
    pairs = [(_pick(long), _pick(short)) for _ in range(min(plan.rounds, plan.few // 2))]
    took, baseline = (median(column) for column in zip(*pairs, strict=True))
    long.close()
    short.close()
    yield Figure(
        what=f"pick and claim, {plan.many:,} pending of 1,000 users",
        measured=ms(took),
        against=f"{ms(baseline)}: {plan.few:,} pending",
        ratio=took / baseline,
        target=at_most(took / baseline, 2),
    )


def _pick(store: SqliteStore) -> float:
    claims: list[Claim] = []
    took = seconds(lambda: claims.extend(_claim(store)))
    [claim] = claims
    outcome = Outcome(status=Status.COMPLETED, reason="exit", finished_at=_now(), held=1.0)
    store.finish([Ended(task_id=claim.task.id, token=claim.token, outcome=outcome)], now=_now())
    return took


def _claim(store: SqliteStore) -> list[Claim]:
    now = _now()
    decision = decide(store.snapshot(now=now, free_slots=1, ageing=3600.0, serialized=True, exclude=()))
    return store.claim(decision.picks, Terms(now=now, slots=4, serialized=True, lease=3600.0, holder=this_holder()))


def _now() -> int:
    return time.time_ns() // 1_000_000
