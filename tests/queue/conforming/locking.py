"""Locks of people's commands, leases, and pauses."""

from tests.queue.conforming.base import Conforming
from tests.queue.driver import HOLDER, HOUR, NOW, Driver, MakeStore

from fairlead.queue.store import Lock, PastLock, Pause


class Locking(Conforming):
    """acquire, release, renew, locks, lock, past_lock, past_locks, pause, resume, pauses."""

    # ------------------------------------------------------------------ acquire and release

    def test_a_hold_is_a_lock_like_any_other(self, drive: Driver) -> None:
        """It has a name, an id, a token, a holder and a lease, and is found by its name and in the list."""
        lock = drive.store.acquire("user:alice", task_id="edit", holder=HOLDER, now=NOW, lease=60.0)
        assert lock == Lock(
            name="user:alice",
            lock_id=f"edit_{lock.token if lock else 0}",
            token=lock.token if lock else 0,
            task_id="edit",
            kind="hold",
            state="held",
            acquired_at=NOW,
            expires_at=NOW + 60_000,
            holder=HOLDER,
        )
        assert drive.store.lock("user:alice") == lock
        assert drive.store.locks() == [lock]
        assert lock
        assert lock.user == "alice"

    def test_a_lock_is_held_by_one(self, drive: Driver, make_store: MakeStore) -> None:
        """While somebody holds it, nobody else gets it, in this process or another; others' locks are free."""
        assert drive.hold()
        assert drive.hold() is None
        assert Driver(make_store()).hold() is None
        assert drive.hold("bob")

    def test_a_running_task_keeps_the_lock(self, drive: Driver) -> None:
        """A command waits for the user's task to end."""
        claim = drive.run_one()
        assert drive.hold() is None
        drive.finish(claim)
        assert drive.hold()

    def test_a_lock_need_not_be_a_users(self, drive: Driver) -> None:
        """Any name can be locked; only `user:` names keep users apart."""
        lock = drive.store.acquire("project:site", task_id="git", holder=HOLDER, now=NOW, lease=60.0)
        assert lock
        assert lock.user is None
        assert drive.store.acquire("project:site", task_id="git", holder=HOLDER, now=NOW, lease=60.0) is None
        drive.add("alice")
        assert len(drive.claim()) == 1
        assert drive.release(lock.lock_id)

    def test_age_alone_frees_nothing(self, drive: Driver) -> None:
        """A lock whose lease is long over is still held."""
        drive.hold()
        drive.now += 1000 * HOUR
        assert drive.hold() is None

    def test_a_release_is_remembered_with_its_evidence(self, drive: Driver) -> None:
        """The lock is free, and what freed it can be looked up by its id."""
        lock_id = drive.hold()
        assert lock_id
        assert drive.store.past_lock(lock_id) is None
        drive.pass_time(5)
        assert drive.release(lock_id)
        assert drive.store.lock("user:alice") is None
        past = drive.store.past_lock(lock_id)
        assert past == PastLock(
            name="user:alice",
            lock_id=lock_id,
            token=past.token if past else 0,
            task_id="by-hand",
            kind="hold",
            acquired_at=NOW,
            released_at=NOW + 5000,
            why="test",
            evidence={"proof": "a test said so"},
        )
        assert drive.events() == ["lock_taken", "lock_released"]

    def test_the_last_releases_come_first(self, drive: Driver) -> None:
        """Past locks are listed newest first, as many as asked for."""
        ids = []
        for number in range(3):
            ids.append(drive.hold(f"u{number}") or "")
            drive.pass_time(1)
            drive.release(ids[-1])
        assert [past.lock_id for past in drive.store.past_locks(2)] == [ids[2], ids[1]]

    def test_a_release_counts_once(self, drive: Driver) -> None:
        """Releasing what is not held any more, or never was, is refused and logged; the next holder keeps his."""
        first = drive.hold()
        assert first
        assert drive.release(first)
        second = drive.hold()
        assert not drive.release(first)
        assert not drive.release("nobody_1")
        assert second
        lock = drive.store.lock("user:alice")
        assert lock
        assert lock.lock_id == second
        assert [one["lock_id"] for one in drive.refusals()] == [first, "nobody_1"]

    # ------------------------------------------------------------------ leases

    def test_a_renewal_extends_the_lease(self, drive: Driver) -> None:
        """The lock expires so much after the renewal; the others do not change."""
        first, second = drive.hold("alice"), drive.hold("bob")
        assert first
        drive.store.renew([first], now=NOW + 1000, lease=10.0)
        expiry = {lock.lock_id: lock.expires_at for lock in drive.store.locks()}
        assert expiry == {first: NOW + 11_000, second: NOW + 60_000}

    def test_a_heartbeat_of_an_old_holder_is_refused_and_logged(self, drive: Driver) -> None:
        """It extends nobody's lease; those renewed with it are."""
        old = drive.hold()
        assert old
        drive.release(old)
        new, other = drive.hold(), drive.hold("bob")
        assert other
        drive.store.renew([old, other], now=NOW + 1000, lease=600.0)
        expiry = {lock.lock_id: lock.expires_at for lock in drive.store.locks()}
        assert expiry == {new: NOW + 60_000, other: NOW + 601_000}
        assert drive.refusals() == [{"what": "renew", "lock_id": old}]

    def test_locks_are_listed_oldest_first(self, drive: Driver) -> None:
        """The longest held comes first."""
        for user in ("zoe", "alice", "mia"):
            drive.hold(user)
            drive.pass_time(1)
        assert [lock.user for lock in drive.store.locks()] == ["zoe", "alice", "mia"]
        assert drive.store.lock("user:bob") is None

    # ------------------------------------------------------------------ pauses

    def test_pauses_are_listed_with_who_and_why(self, drive: Driver) -> None:
        """A scope is paused once; pausing it again replaces the reason."""
        drive.store.pause("user:alice", by="op", reason="first", now=NOW)
        drive.store.pause("all", by="op", reason="later", now=NOW + 1)
        drive.store.pause("user:alice", by="ann", reason="second", now=NOW + 2)
        assert drive.store.pauses() == [
            Pause(scope="all", at=NOW + 1, by="op", reason="later"),
            Pause(scope="user:alice", at=NOW + 2, by="ann", reason="second"),
        ]

    def test_resuming_what_is_not_paused_is_nothing(self, drive: Driver) -> None:
        """It is said so, and no event is written."""
        drive.store.pause("all", by="op", reason="", now=NOW)
        assert drive.store.resume("all", by="op", now=NOW)
        assert not drive.store.resume("all", by="op", now=NOW)
        assert drive.events() == ["paused", "resumed"]
        assert drive.store.pauses() == []

    def test_resuming_somebody_unknown_opens_no_account(self, drive: Driver) -> None:
        """A pause may name a user or a project that never had a task."""
        for scope in ("user:nobody", "project:nothing"):
            drive.store.pause(scope, by="op", reason="", now=NOW)
            assert drive.store.resume(scope, by="op", now=NOW)
        assert drive.store.candidate("nobody").lanes == ()
