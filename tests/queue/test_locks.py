"""Locks as people and other tools use them: the row and its visible file, in step."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.queue.driver import Driver
from tests.queue.places import Place
from tests.queue.test_lockfiles import FOREIGN, UNREADABLE, unchanged
from tests.support.full_disk import room_for
from tests.support.patience import eventually
from tests.support.programs import ROOT, command, run, started

from fairlead.base import bell
from fairlead.base.errors import UsageError
from fairlead.base.identity import boot_id, host, this_process
from fairlead.queue import locks as locks_module
from fairlead.queue.lockfiles import LockFiles, Metadata
from fairlead.queue.locks import LockManager, this_holder
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.store import Lock


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@pytest.fixture
def without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself: only a ring can wake a waiter in time."""
    monkeypatch.setattr(locks_module, "LOOK_AGAIN", 1000.0)


def taken(place: Place, user: str = "alice", task_id: str = "edit") -> Lock:
    lock = place.locks.acquire(user, task_id, timeout=0)
    assert lock
    return lock


def refusals(place: Place) -> list[dict[str, Any]]:
    return [event.detail for event in place.store.events() if event.event == "refused"]


# ---------------------------------------------------------------------- acquire and release


def test_a_lock_is_a_row_and_two_files(place: Place) -> None:
    """Taking it makes all three, naming this very process; releasing it leaves none."""
    lock = taken(place)
    assert place.store.lock("user:alice") == lock
    assert place.locks.list() == [lock]
    assert lock.holder == this_holder()
    shown = json.loads(Path(place.paths.locks, "user_alice.json").read_text())
    assert (shown["lock_id"], shown["acquired_by_pid"]) == (lock.lock_id, os.getpid())
    assert place.locks.is_locked("alice")
    assert place.locks.release("alice", lock.lock_id)
    assert place.locks.list() == []
    assert os.listdir(place.paths.locks) == []
    assert not place.locks.is_locked("alice")


def test_a_holder_is_a_process_of_one_boot_of_one_host() -> None:
    """A pid alone would prove nothing."""
    holder = this_holder()
    assert (holder.pid, holder.start) == tuple(this_process())
    assert (holder.host, holder.boot_id) == (host(), boot_id())


def test_zero_tries_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says no at once, writes nothing, and hangs up no bell."""
    taken(place)
    monkeypatch.delattr(bell, "Listener")
    events = place.store.last_event()
    begun = time.monotonic()
    assert place.locks.acquire("alice", "other", timeout=0) is None
    assert place.locks.acquire("alice", "other", timeout=-5) is None
    assert time.monotonic() - begun < 1.0
    assert os.listdir(place.paths.bells) == []
    assert place.store.last_event() == events


def test_a_wait_comes_to_its_end(place: Place) -> None:
    """Whoever waits in vain learns so after the time he gave, and leaves no bell behind."""
    taken(place)
    begun = time.monotonic()
    assert place.locks.acquire("alice", "other", timeout=0.3) is None
    assert 0.3 <= time.monotonic() - begun < 20
    assert os.listdir(place.paths.bells) == []


def test_users_do_not_wait_for_each_other(place: Place) -> None:
    """One user's lock is no other's."""
    taken(place, "alice")
    assert taken(place, "bob").user == "bob"
    assert not place.locks.is_locked("carol")


def test_users_in_parallel_never_refuse_each_other(place: Place) -> None:
    """Eight processes take and free the locks of eight users at once, trying once each time: no try fails."""
    assert run("queue", "take_own_locks", place.paths.home, 8, 25).split() == ["25"] * 8


def test_a_wrong_name_is_refused(place: Place) -> None:
    """No path and no row is made from it."""
    with pytest.raises(UsageError, match="cannot be a user"):
        place.locks.acquire("../alice", "edit", timeout=0)
    assert place.locks.list() == []


# ---------------------------------------------------------------------- waiting


@pytest.mark.usefixtures("without_polling")
def test_a_release_wakes_who_waits(place: Place) -> None:
    """By a ring: nobody here would look again before the time is up."""
    with started("queue", "hold", place.paths.home, "alice") as holder, ThreadPoolExecutor() as pool:
        waiting = pool.submit(_acquire_elsewhere, place, "alice", 60.0)
        eventually(lambda: os.listdir(place.paths.bells), "a bell of the waiting thread")
        assert holder.stdin
        holder.stdin.close()
        assert waiting.result(timeout=30)


def _acquire_elsewhere(place: Place, user: str, timeout: float) -> Lock | None:
    """As another process would: with a connection of its own."""
    other = Place(place.paths.home)
    try:
        lock = other.locks.acquire(user, f"t-{threading.get_native_id()}", timeout)
        if lock:
            assert other.locks.release(user, lock.lock_id)
        return lock
    finally:
        other.close()


@pytest.mark.usefixtures("without_polling")
def test_all_who_wait_get_their_turn(place: Place) -> None:
    """Several threads of one process wait, each with a bell of its own, and each is woken."""
    lock = taken(place)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(_acquire_elsewhere, place, "alice", 60.0) for _ in range(4)]
        eventually(lambda: len(os.listdir(place.paths.bells)) == 4, "four bells")
        place.locks.release("alice", lock.lock_id)
        tokens = {got.token for one in waiting if (got := one.result(timeout=30))}
    assert len(tokens) == 4


@pytest.mark.usefixtures("without_polling")
def test_a_release_before_the_bell_hangs_is_not_missed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has just hung up his bell looks once more: the lock may have become free in between."""
    lock = taken(place)

    class Late(bell.Listener):
        def __init__(self, directory: str, name: str) -> None:
            assert place.locks.release("alice", lock.lock_id)  # its ring finds nobody
            super().__init__(directory, name)

    monkeypatch.setattr(bell, "Listener", Late)
    assert place.locks.acquire("alice", "other", timeout=60.0)


def test_a_lost_ring_is_made_good(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that becomes free without a ring is found by looking again."""
    monkeypatch.setattr(locks_module, "LOOK_AGAIN", 0.02)
    foreign = Path(place.paths.locks, "user_alice.lock")
    foreign.touch()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(_acquire_elsewhere, place, "alice", 60.0)
        eventually(lambda: os.listdir(place.paths.bells), "a bell of the waiting thread")
        foreign.unlink()
        assert waiting.result(timeout=30)


# ---------------------------------------------------------------------- foreign files


FILES: dict[str, Callable[[Path], object]] = {
    **UNREADABLE,
    "empty": lambda path: path.touch(),
    "another tool's": lambda path: path.write_text(json.dumps(FOREIGN)),
    "odd id": lambda path: path.write_text(json.dumps({"lock_id": "\ud800"})),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES.keys())
def test_a_foreign_lock_is_honoured(place: Place, make: Callable[[Path], object]) -> None:
    """Whatever somebody puts there, that user is locked, nothing is written, and the file stays."""
    path = Path(place.paths.locks, "user_alice.lock")
    make(path)
    before = unchanged(path)
    assert place.locks.foreign() == {"alice"}
    assert place.locks.is_locked("alice")
    assert place.locks.acquire("alice", "edit", timeout=0) is None
    assert (place.locks.list(), place.store.last_event()) == ([], 0)
    assert unchanged(path) == before
    assert taken(place, "bob")


def test_words_over_the_file_of_a_released_lock_are_honoured(place: Place) -> None:
    """The metadata beside them tells of a lock that is over; the words do not."""
    old = taken(place)
    place.locks.release("alice", old.lock_id)
    place.files.put(old)
    Path(place.paths.locks, "user_alice.lock").write_text("maintenance")
    assert place.locks.foreign() == {"alice"}
    assert place.locks.acquire("alice", "edit", timeout=0) is None


def test_our_own_locks_are_not_foreign(place: Place) -> None:
    """Neither a run's nor a command's."""
    assert place.locks.foreign() == set()
    taken(place, "alice")
    claim = Driver(place.store).claim_one("bob")
    assert place.locks.show(claim.lock)
    assert place.locks.foreign() == set()


def test_a_foreign_lock_that_comes_in_between_wins(place: Place) -> None:
    """Somebody makes the file after our row: the row is given back, his file is not touched."""

    class Slow(LockFiles):
        def put(self, lock: Lock) -> bool:
            Path(self.directory, "user_alice.lock").write_text("mine")
            return super().put(lock)

    locks = LockManager(place.store, Slow(place.paths.locks), place.clock, place.paths.bells, lease=60.0)
    assert locks.acquire("alice", "edit", timeout=0) is None
    assert locks.list() == []
    assert Path(place.paths.locks, "user_alice.lock").read_text() == "mine"


def test_a_lock_that_cannot_be_shown_is_not_kept(place: Place) -> None:
    """Without its file the row is given back, and the trouble is told."""
    shutil.rmtree(place.paths.locks)
    Path(place.paths.locks).touch()
    with pytest.raises(FileExistsError):
        place.locks.acquire("alice", "edit", timeout=0)
    assert place.locks.list() == []


# ---------------------------------------------------------------------- left-overs


def _bring_back_files(place: Place, lock: Lock) -> None:
    """As a power cut does, which takes back the removal but not the commit."""
    assert place.files.put(lock)


def test_a_left_over_of_our_own_locks_nobody(place: Place) -> None:
    """A file whose lock was released is no lock: it is replaced when the row is taken next."""
    old = taken(place)
    place.locks.release("alice", old.lock_id)
    _bring_back_files(place, old)
    assert not place.locks.is_locked("alice")
    assert place.locks.foreign() == set()
    new = taken(place)
    found = place.files.read("alice")
    assert found
    assert found.lock_id == new.lock_id
    assert new.token > old.token


def test_a_left_over_makes_way_for_a_claim(place: Place) -> None:
    """The dispatcher shows its lock over it, too."""
    old = taken(place)
    place.locks.release("alice", old.lock_id)
    _bring_back_files(place, old)
    claim = Driver(place.store).claim_one("alice")
    assert place.locks.show(claim.lock)
    found = place.files.read("alice")
    assert found
    assert found.lock_id == claim.lock_id


def test_a_foreign_lock_does_not_make_way_for_a_claim(place: Place) -> None:
    """Another tool's file, id and all, stays where the dispatcher wants to show its lock."""
    path = Path(place.paths.locks, "user_alice.lock")
    path.write_text(json.dumps(FOREIGN))
    claim = Driver(place.store).claim_one("alice")
    assert not place.locks.show(claim.lock)
    assert json.loads(path.read_text()) == FOREIGN


def test_showing_again_changes_nothing(place: Place) -> None:
    """A lock that is shown already stays shown."""
    lock = taken(place)
    before = unchanged(place.files.path("alice"))
    assert place.locks.show(lock)
    assert unchanged(place.files.path("alice")) == before


@pytest.mark.parametrize("what", ["shown already", "foreign"])
def test_showing_what_needs_no_writing_needs_no_room(place: Place, what: str) -> None:
    """On a full disk a lock that is shown is shown, and a foreign file is in the way."""
    if what == "foreign":
        Path(place.paths.locks, "user_alice.lock").touch()
        lock = Driver(place.store).claim_one("alice").lock
    else:
        lock = taken(place)
    with room_for(1):
        assert place.locks.show(lock) is (what == "shown already")


def test_who_was_faster_may_have_shown_the_same_lock(place: Place) -> None:
    """The watchdog mends what the dispatcher is about to show: both are content."""

    class Slow(LockFiles):
        def put(self, lock: Lock) -> bool:
            place.files.put(lock)
            return super().put(lock)

    locks = LockManager(place.store, Slow(place.paths.locks), place.clock, place.paths.bells, lease=60.0)
    assert locks.show(Driver(place.store).claim_one("alice").lock)


def test_a_lock_of_a_task_is_not_shown(place: Place) -> None:
    """Where serialization is off there is nothing to show, and nothing in the way."""
    drive = Driver(place.store)
    drive.serialized = False
    assert place.locks.show(drive.claim_one().lock)
    assert os.listdir(place.paths.locks) == []


# ---------------------------------------------------------------------- release


def test_a_wrong_id_releases_nothing(place: Place) -> None:
    """Neither an old id, nor another user's, nor a made-up one frees anybody; each try is logged."""
    old = taken(place, "alice")
    place.locks.release("alice", old.lock_id)
    mine, other = taken(place, "alice"), taken(place, "bob")
    wrong = [old.lock_id, other.lock_id, "nobody_1", ""]
    assert not any(place.locks.release("alice", lock_id) for lock_id in wrong)
    assert not place.locks.release("carol", mine.lock_id)
    assert {lock.lock_id for lock in place.locks.list()} == {mine.lock_id, other.lock_id}
    assert place.files.users() == {"alice", "bob"}
    assert [one["lock_id"] for one in refusals(place)] == [*wrong, mine.lock_id]


def test_a_second_release_is_refused(place: Place) -> None:
    """What is free cannot be freed."""
    lock = taken(place)
    assert place.locks.release("alice", lock.lock_id)
    assert not place.locks.release("alice", lock.lock_id)


def test_a_release_keeps_why_and_on_what_evidence(place: Place) -> None:
    """Both can be looked up later."""
    lock = taken(place)
    place.locks.release("alice", lock.lock_id, why="forced", evidence={"by": "op"})
    past = place.store.past_lock(lock.lock_id)
    assert past
    assert (past.why, past.evidence) == ("forced", {"by": "op"})


def test_the_file_goes_before_the_row(place: Place) -> None:
    """Who dies in between leaves a row, which is proof against everybody, and never a file that nobody answers for."""

    class Dying(SqliteStore):
        def release(self, lock_id: str, **_: Any) -> bool:  # noqa: ANN401
            raise KeyboardInterrupt(lock_id)

    lock = taken(place)
    dying = Dying(open_store(place.paths.store).db, place.store.share)
    locks = LockManager(dying, place.files, place.clock, place.paths.bells, lease=60.0)
    with pytest.raises(KeyboardInterrupt):
        locks.release("alice", lock.lock_id)
    assert place.files.read("alice") is None
    assert place.locks.is_locked("alice")
    assert place.locks.acquire("alice", "other", timeout=0) is None


def test_the_row_comes_before_the_file(place: Place) -> None:
    """Who dies in between leaves a row without a file: the user is locked all the same."""
    line = command("queue", "die_before_file", place.paths.home, "alice")
    assert subprocess.run(line, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert place.files.read("alice") is None
    assert place.locks.is_locked("alice")
    assert place.locks.foreign() == set()


def test_a_killed_holder_keeps_his_lock(place: Place) -> None:
    """Neither death nor age frees it here: that takes somebody who proves it."""
    with started("queue", "hold", place.paths.home, "alice") as holder:
        holder.kill()
        holder.wait()
    assert place.locks.is_locked("alice")
    assert place.locks.acquire("alice", "other", timeout=0) is None
    assert place.locks.foreign() == set()


# ---------------------------------------------------------------------- spoilt metadata


def test_a_spoilt_lock_file_is_known_by_its_metadata(place: Place) -> None:
    """While the other file says whose it is, the lock is released and both go."""
    lock = taken(place)
    Path(place.paths.locks, "user_alice.lock").write_bytes(b"\xff\x00")
    assert place.locks.is_locked("alice")
    assert place.locks.release("alice", lock.lock_id)
    assert os.listdir(place.paths.locks) == []


def test_a_lock_file_spoilt_beyond_recognition_is_never_blindly_removed(place: Place) -> None:
    """The row is freed, the file stays, and its user waits until somebody has looked at it."""
    lock = taken(place)
    for name in ("user_alice.lock", "user_alice.json"):
        Path(place.paths.locks, name).write_bytes(b"\xff\x00")
    assert place.locks.release("alice", lock.lock_id)
    found = place.files.read("alice")
    assert found
    assert found.kind is Metadata.CORRUPT
    assert place.locks.foreign() == {"alice"}
    place.files.set_aside("alice")
    assert taken(place)


# ---------------------------------------------------------------------- many at once


def test_processes_contend_for_one_lock(place: Place) -> None:
    """Each adds one to a number in a file, by reading and writing it: under the lock no addition is lost."""
    number = Path(place.paths.home, "number")
    number.write_text("0")
    run("queue", "count", place.paths.home, number, 6, 10)
    assert number.read_text() == "60"
    assert place.locks.list() == []
    assert os.listdir(place.paths.locks) == []
