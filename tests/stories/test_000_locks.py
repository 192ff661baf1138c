"""000, per-user queue isolation: its own tests and its contention table, played with the store and the locks alone."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.queue.driver import Driver
from tests.queue.invariants import check_counters, check_store
from tests.queue.places import Place
from tests.support.programs import run

from fairlead.queue.states import Status
from fairlead.queue.store import Ended
from fairlead.queue.task import Outcome


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    check_store(place.store)
    check_counters(place.paths.store)
    place.close()


def test_basic_lock_acquire_and_release(place: Place) -> None:
    """Test 1: who acquires has the lock and its id; after the release the next one gets it."""
    first = place.locks.acquire("alice", "task_123", timeout=30)
    assert first
    assert first.lock_id.startswith("task_123_")
    assert place.locks.acquire("alice", "task_124", timeout=0) is None
    assert place.locks.release("alice", first.lock_id)
    assert place.locks.acquire("alice", "task_124", timeout=0)


def test_the_lock_files_are_where_000_says(place: Place) -> None:
    """user_NAME.lock and user_NAME.json, with every field of 000's example."""
    place.locks.acquire("alice", "task_123", timeout=0)
    assert sorted(os.listdir(place.paths.locks)) == ["user_alice.json", "user_alice.lock"]
    shown = json.loads(Path(place.paths.locks, "user_alice.json").read_text())
    assert {"user", "lock_id", "task_id", "acquired_at", "acquired_by_pid", "expires_at"} <= shown.keys()


def test_concurrent_lock_contention_of_threads(tmp_path: Path, place: Place) -> None:
    """Test 2, threads: of ten who try at the same moment, one gets the lock."""

    def attempt(number: int) -> bool:
        own = Place(tmp_path)
        try:
            return own.locks.acquire("alice", f"task_{number}", timeout=0) is not None
        finally:
            own.close()

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(attempt, range(10))).count(True) == 1
    assert len(place.locks.list()) == 1


def test_the_lost_update_cannot_happen(tmp_path: Path, place: Place) -> None:
    """Two agents read version 1, both write version 2: under the lock none of 80 such changes is lost."""
    shared = tmp_path / "file.py"
    shared.write_text("0")
    run("queue", "count", tmp_path, shared, 4, 20)
    assert shared.read_text() == "80"
    assert place.locks.list() == []


def test_a_lock_is_not_freed_by_its_age(place: Place) -> None:
    """Test 3, decided otherwise: an hour, or a hundred, proves nothing about the holder."""
    drive = Driver(place.store)
    assert drive.hold("alice")
    drive.pass_time(100 * 3600)
    assert drive.hold("alice") is None


def test_multiple_user_independence(place: Place) -> None:
    """Test 4: each of a hundred users has his own lock."""
    locks = [place.locks.acquire(f"user{number}", "task", timeout=0) for number in range(100)]
    assert all(locks)
    assert len(place.files.users()) == 100
    for lock in locks:
        assert lock
        assert place.locks.release(lock.user or "", lock.lock_id)


def test_selection_skips_users_with_a_lock(place: Place) -> None:
    """Test 6: the scheduler goes on with the next user, and takes nothing of the locked one."""
    drive = Driver(place.store)
    running = drive.run_one("alice")
    drive.add_many(5, "alice")
    bobs = drive.add("bob")
    assert [claim.task.id for claim in drive.claim()] == [bobs]
    drive.finish(running)
    assert [claim.task.spec.user for claim in drive.claim()] == ["alice"]


def test_the_contention_table(tmp_path: Path, place: Place) -> None:
    """Two daemons, alice locked: both fail on alice, one gets bob; after alice's end one of them gets her next task."""
    one, two = Driver(place.store), Driver(Place(tmp_path).store)
    alice_1 = one.run_one("alice")
    alice_2, alice_3 = one.add_many(2, "alice")
    # Daemon 1 tries alice, fails, and finds nothing else.
    assert one.claim_task(alice_2) == []
    assert one.claim() == []
    # Daemon 2 tries alice, fails, and gets bob.
    bob = two.add("bob")
    assert two.claim_task(alice_2) == []
    assert [claim.task.id for claim in two.claim()] == [bob]
    assert {lock.user for lock in place.locks.list()} == {"alice", "bob"}
    # alice's task completes; daemon 1 polls and gets her next; daemon 2 gets none of hers.
    assert one.finish(alice_1)
    assert [claim.task.id for claim in one.claim()] == [alice_2]
    assert two.claim() == []
    assert two.claim_task(alice_3) == []
    assert {lock.user for lock in place.locks.list()} == {"alice", "bob"}


def test_many_daemons_never_run_two_tasks_of_a_user(place: Place) -> None:
    """Six daemons as processes, four tasks per user: at every end each user has had one, under one lock."""
    drive = Driver(place.store)
    drive.slots = 1000
    for number in range(20):
        drive.add_many(4, f"user{number}")
    for _ in range(4):
        claims = [line.split()[0] for line in run("queue", "claim", place.paths.store, 6).splitlines()]
        assert len(claims) == len(set(claims)) == 20
        users = [place.store.get(task_id).spec.user for task_id in claims]
        assert len(set(users)) == 20
        check_store(place.store)
        for task in place.store.active():
            lock = place.store.lock(f"user:{task.spec.user}")
            assert lock
            assert lock.token == task.token
        _end_all(drive)
    assert place.store.count_active() == 0


def _end_all(drive: Driver) -> None:
    outcome = Outcome(status=Status.COMPLETED, reason="exit", finished_at=drive.now, held=1.0)
    ends = [Ended(task_id=task.id, token=task.token, outcome=outcome) for task in drive.store.active()]
    assert all(drive.store.finish(ends, now=drive.now))


def test_a_corrupt_lock_file_never_lets_a_second_task_in(place: Place) -> None:
    """Lock file corruption while the task runs: the row still locks alice, and her next task waits for the end."""
    drive = Driver(place.store)
    claim = drive.run_one("alice")
    assert place.locks.show(claim.lock)
    for name in os.listdir(place.paths.locks):
        Path(place.paths.locks, name).write_bytes(b"\x00corrupt\xff")
    drive.add("alice")
    assert place.locks.is_locked("alice")
    assert drive.claim(exclude=place.locks.foreign()) == []


def test_serialization_can_be_switched_off(place: Place) -> None:
    """`enabled: false`: parallel runs of one user, for debugging."""
    drive = Driver(place.store)
    drive.serialized = False
    drive.add_many(3, "alice")
    assert len([*drive.claim(), *drive.claim(), *drive.claim()]) == 3
