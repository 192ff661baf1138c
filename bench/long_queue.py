"""Stores with many and with few pending tasks."""

import os
import sys
import time
from collections.abc import Iterator

from bench.measuring import NOTHING, seconds
from fairlead.base.ids import new_id
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.store import Submission
from fairlead.queue.task import Spec

#: Tasks that enter with one commit.
BATCH = 10_000


def long_queue(home: str, count: int, users: int) -> tuple[SqliteStore, float]:
    """A store with so many pending tasks, and how many entered it per second; one that exists is taken as it is."""
    path = os.path.join(home, "queue.db")
    if os.path.exists(path):
        return open_store(path), 0.0
    os.makedirs(home)
    store = open_store(path)
    took = sum(seconds(lambda batch=batch: _add(store, batch)) for batch in _batches(count, users))  # type: ignore[misc]
    return store, count / took if count else 0.0


def _add(store: SqliteStore, batch: list[Submission]) -> None:
    store.add(batch, now=_now(), warn_at=sys.maxsize, refuse_at=sys.maxsize)


def _batches(count: int, users: int) -> Iterator[list[Submission]]:
    for begin in range(0, count, BATCH):
        now = _now()
        numbers = range(begin, min(begin + BATCH, count))
        yield [Submission(id=new_id(now), spec=_spec(number % users), created_at=now) for number in numbers]


def _spec(user: int) -> Spec:
    return Spec(user=f"user{user:04}", project="default", agent="shell", action="shell", command=(NOTHING,))


def _now() -> int:
    return time.time_ns() // 1_000_000
