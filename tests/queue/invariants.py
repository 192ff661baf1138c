"""What must be true of a store after every transaction, counted anew and from nothing but its tasks and locks."""

from collections import Counter
from collections.abc import Iterable

import apsw

from fairlead.queue.states import ACTIVE, FINAL, Status
from fairlead.queue.store import Filter, Lock, Store
from fairlead.queue.task import Task

ALL = 1_000_000


def check_store(store: Store) -> None:
    """The parts that every store can be asked."""
    tasks = store.list_tasks(Filter(limit=ALL))
    locks = store.locks()
    check_locks(tasks, locks)
    check_attempts(store, tasks)
    active = [task for task in tasks if task.status in ACTIVE]
    assert store.count_active() == len(active)
    assert sorted(task.id for task in store.active()) == sorted(task.id for task in active)


def check_locks(tasks: list[Task], locks: list[Lock]) -> None:
    """Every active attempt has its lock, and every lock of a run has its attempt, or is in quarantine."""
    of_runs = {lock.token: lock for lock in locks if lock.kind == "run"}
    active = {task.token: task for task in tasks if task.status in ACTIVE}
    assert active.keys() <= of_runs.keys(), "a run without a lock"
    for token, lock in of_runs.items():
        assert token in active or lock.state == "quarantined", f"{lock} guards nothing"
        if token in active:
            assert lock.task_id == active[token].id
            assert lock.user in (None, active[token].spec.user)
    assert len({lock.lock_id for lock in locks}) == len(locks)
    check_one_at_a_time(active.values(), of_runs)


def check_one_at_a_time(active: Iterable[Task], locks: dict[int, Lock]) -> None:
    """A user under a user's lock has one active task."""
    serialized = Counter(task.spec.user for task in active if locks[task.token].user is not None)
    assert all(count == 1 for count in serialized.values()), f"two at once: {serialized}"


def check_attempts(store: Store, tasks: list[Task]) -> None:
    """Tokens are given once, and grow from attempt to attempt."""
    given: set[int] = set()
    for task in tasks:
        attempts = store.attempts(task.id)
        tokens = [attempt.token for attempt in attempts]
        assert tokens == sorted(set(tokens)), f"{task.id} went back: {tokens}"
        assert not given & set(tokens), "two attempts have the same token"
        given |= set(tokens)
        assert [attempt.number for attempt in attempts] == list(range(1, task.attempt + 1))
        assert task.token == (tokens[-1] if tokens else 0)
        assert (task.outcome is not None) == (task.status in FINAL)


def check_counters(path: str) -> None:
    """The embedded store's running counts are what counting gives."""
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    db.set_busy_timeout(10_000)
    try:
        db.execute("BEGIN")
        _compare_counters(db)
        assert db.pragma("integrity_check") == "ok"
    finally:
        db.close()


def _compare_counters(db: apsw.Connection) -> None:
    tasks = db.execute("SELECT user, project, status, due FROM tasks").fetchall()
    kept = {
        (row[0], row[1]): tuple(row[2:])
        for row in db.execute("SELECT user, project, pending, ready, running FROM lanes")
    }
    of_users = {row[0]: tuple(row[1:]) for row in db.execute("SELECT name, pending, ready, running FROM users")}
    lanes = {lane: _count([task for task in tasks if (task[0], task[1]) == lane]) for lane in kept}
    users = {user: _count([task for task in tasks if task[0] == user]) for user in of_users}
    assert {(task[0], task[1]) for task in tasks} <= kept.keys(), "a task without an account"
    assert kept == lanes
    assert of_users == users


def _count(tasks: list[tuple[object, ...]]) -> tuple[int, int, int]:
    waiting = [task for task in tasks if task[2] == Status.QUEUED]
    return len(waiting), sum(bool(task[3]) for task in waiting), sum(task[2] in ACTIVE for task in tasks)
