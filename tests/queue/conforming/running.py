"""The life of an attempt, from claim to end, and everybody who comes too late."""

from contextlib import nullcontext

import pytest
from tests.queue.conforming.base import Conforming
from tests.queue.driver import DAY, HOLDER, NOW, Driver, MakeStore, told

from fairlead.base.errors import RefusedError
from fairlead.queue.errors import NoSuchTaskError, StaleTokenError
from fairlead.queue.states import ACTIVE, FINAL, LEGAL, IllegalTransitionError, Status
from fairlead.queue.store import Claim, Ended, Holder
from fairlead.queue.task import Attempt, Outcome

SUPERVISOR = Holder(host="here", boot_id="this-boot", pid=4712, start=2)


class Running(Conforming):
    """claim, unclaim, started, finish, active, count_active."""

    # ------------------------------------------------------------------ claim and start

    def test_a_claim_takes_task_and_lock_together(self, drive: Driver) -> None:
        """The task is claimed under a token, its user's lock names both, and an attempt is written down."""
        claim = drive.claim_one("alice")
        assert claim.task == drive.store.get(claim.task.id)
        assert (claim.task.status, claim.task.attempt, claim.task.token) == (Status.CLAIMED, 1, claim.token)
        lock = drive.store.lock("user:alice")
        assert lock == claim.lock
        assert lock
        assert (lock.task_id, lock.kind, lock.state, lock.holder) == (claim.task.id, "run", "held", HOLDER)
        assert lock.expires_at - lock.acquired_at == 3_600_000
        assert drive.store.attempts(claim.task.id) == [
            Attempt(number=1, token=claim.token, claimed_at=NOW, host=HOLDER.host)
        ]
        assert drive.events(claim.task.id) == ["queued", "claimed"]

    def test_a_start_names_the_supervisor(self, drive: Driver) -> None:
        """From then on the task runs, and the lock is held by whoever supervises it."""
        claim = drive.claim_one()
        drive.store.started(claim.task.id, claim.token, started_at=NOW + 5, holder=SUPERVISOR)
        task = drive.store.get(claim.task.id)
        assert (task.status, task.started_at) == (Status.RUNNING, NOW + 5)
        [lock] = drive.store.locks()
        assert (lock.holder, lock.lock_id) == (SUPERVISOR, claim.lock_id)
        assert drive.store.attempts(task.id)[0].started_at == NOW + 5

    def test_tokens_only_grow(self, make_store: MakeStore) -> None:
        """Claims and holds, of whichever process and whatever the clock says, get ever larger tokens."""
        tokens = []
        for number in range(6):
            store = Driver(make_store(), now=NOW - number * DAY)
            claim = store.claim_one(f"u{number}")
            held = store.store.acquire("user:other", task_id="t", holder=HOLDER, now=store.now, lease=1.0)
            assert held
            tokens += [claim.token, held.token]
            assert store.release(held.lock_id)
            if number % 2:
                assert store.finish(claim)
            else:
                store.unclaim(claim)
        assert tokens == sorted(set(tokens))

    def test_active_tasks_are_those_that_hold_a_slot(self, drive: Driver) -> None:
        """Claimed and running tasks are active; waiting and ended ones are not."""
        claimed, running = drive.claim_one("a"), drive.run_one("b")
        drive.finish(drive.run_one("c"))
        drive.add("d")
        assert [task.id for task in drive.store.active()] == [claimed.task.id, running.task.id]
        assert drive.store.count_active() == 2

    # ------------------------------------------------------------------ ends

    @pytest.mark.parametrize("status", sorted(FINAL))
    def test_an_end_is_recorded_whole(self, drive: Driver, status: Status) -> None:
        """Task, attempt, lock, events and outcome tell the same, and the user is free."""
        claim = drive.run_one()
        drive.pass_time(7)
        outcome = Outcome(
            status=status, reason="signal", error="killed", exit_code=None, signal="KILL", finished_at=drive.now,
            held=7.0, result={"a": 1}, artifacts=("x",), log_tail="…", evidence={"proof": "seen"},
        )  # fmt: skip
        end = Ended(task_id=claim.task.id, token=claim.token, outcome=outcome, started_at=NOW)
        assert drive.store.finish([end], now=drive.now) == [True]
        task = drive.store.get(claim.task.id)
        assert (task.status, task.outcome, task.finished_at, task.started_at) == (status, outcome, drive.now, NOW)
        [attempt] = drive.store.attempts(task.id)
        assert (attempt.status, attempt.reason, attempt.error, attempt.signal) == (status, "signal", "killed", "KILL")
        assert drive.store.locks() == []
        past = drive.store.past_lock(claim.lock_id)
        assert past
        assert (past.evidence, past.released_at) == ({"proof": "seen"}, drive.now)
        assert told(drive.store.events(task_id=task.id))[-1] == (status, status)

    def test_an_end_may_come_before_its_start_was_seen(self, drive: Driver) -> None:
        """A run so short that nobody saw it start is recorded as started and ended, in that order."""
        claim = drive.claim_one()
        assert drive.finish(claim)
        assert drive.events(claim.task.id) == ["queued", "claimed", "started", "completed"]
        assert drive.store.get(claim.task.id).started_at == NOW
        assert drive.store.attempts(claim.task.id)[0].started_at == NOW

    def test_a_claim_that_never_started_can_fail(self, drive: Driver) -> None:
        """Then no start is told of."""
        claim = drive.claim_one()
        assert drive.finish(claim, Status.FAILED)
        assert drive.events(claim.task.id) == ["queued", "claimed", "failed"]
        assert drive.store.get(claim.task.id).started_at is None

    def test_several_ends_are_recorded_together(self, drive: Driver) -> None:
        """A batch says of each end whether it counted: one that came too late does not spoil the others."""
        first, second, third = (drive.run_one(user) for user in "abc")
        drive.finish(second)
        unknown = Ended(task_id="nobody", token=99, outcome=Outcome(status=Status.LOST, reason="x"))
        ends = [drive.end_of(first), drive.end_of(second), unknown, drive.end_of(third, Status.LOST)]
        assert drive.store.finish(ends, now=drive.now) == [True, False, False, True]
        assert drive.store.active() == []
        assert {"task_id": "nobody", "token": 99, "what": "end as lost"} in drive.refusals()

    @pytest.mark.parametrize("status", sorted(set(Status) - FINAL))
    def test_only_an_end_ends(self, drive: Driver, status: Status) -> None:
        """An outcome that is no final state is refused by name, and nothing is recorded."""
        claim = drive.run_one()
        with pytest.raises(IllegalTransitionError, match=f"cannot end as {status}"):
            drive.finish(claim, status)
        assert drive.status(claim.task.id) is Status.RUNNING
        assert drive.store.lock("user:alice")

    def test_a_quarantined_end_keeps_the_lock(self, drive: Driver) -> None:
        """The task has ended, its user stays locked until somebody releases the lock, and it takes no slot."""
        claim = drive.run_one()
        waiting = drive.add()
        assert drive.finish(claim, Status.LOST, quarantine=True, evidence={"left": [[1, 2]]})
        [lock] = drive.store.locks()
        assert (lock.state, lock.lock_id, lock.evidence) == ("quarantined", claim.lock_id, {"left": [[1, 2]]})
        assert drive.store.count_active() == 0
        assert drive.claim() == []
        assert drive.claim_task(waiting) == []
        assert "quarantined" in drive.events()
        assert drive.release(claim.lock_id)
        assert [claim.task.id for claim in drive.claim()] == [waiting]

    # ------------------------------------------------------------------ taking back

    def test_a_claim_taken_back_leaves_the_task_where_it_was(self, drive: Driver) -> None:
        """It is the first again, its attempt says why, its lock is free on evidence, and nobody is charged."""
        first, second = drive.add_many(2)
        before = drive.look().candidates[0].standing
        [claim] = drive.claim()
        drive.pass_time(100)
        drive.unclaim(claim, "the spawner died")
        assert drive.look().candidates[0].standing == before
        task = drive.store.get(first)
        assert (task.status, task.attempt) == (Status.QUEUED, 1)
        [attempt] = drive.store.attempts(first)
        assert (attempt.status, attempt.reason, attempt.error) == (Status.QUEUED, "never_started", "the spawner died")
        past = drive.store.past_lock(claim.lock_id)
        assert past
        assert past.evidence == {"proof": "never launched"}
        assert drive.drain() == [first, second]

    def test_a_wish_to_cancel_is_fulfilled_when_the_claim_is_taken_back(self, drive: Driver) -> None:
        """It is not forgotten with the claim: the task ends as cancelled and never runs."""
        claim = drive.claim_one()
        drive.store.cancel(claim.task.id, by="bob", now=NOW)
        drive.unclaim(claim)
        task = drive.store.get(claim.task.id)
        assert task.status is Status.CANCELLED
        assert task.outcome
        assert "bob" in task.outcome.error
        assert drive.events(task.id)[-2:] == ["requeued", "cancelled"]
        assert drive.claim() == []

    # ------------------------------------------------------------------ too late

    def _come_too_late(self, drive: Driver, task_id: str, token: int) -> None:
        """Everything that can be said about an attempt, said with a token that is not the task's."""
        before = drive.store.get(task_id), drive.store.locks(), drive.store.attempts(task_id)
        with pytest.raises(StaleTokenError, match=f"token {token} came too late"):
            drive.store.started(task_id, token, started_at=NOW, holder=SUPERVISOR)
        with pytest.raises(StaleTokenError, match=f"token {token} came too late"):
            drive.store.unclaim(task_id, token, reason="x", now=NOW, evidence={})
        end = Ended(task_id=task_id, token=token, outcome=Outcome(status=Status.COMPLETED, reason="exit"))
        assert drive.store.finish([end], now=NOW) == [False]
        assert (drive.store.get(task_id), drive.store.locks(), drive.store.attempts(task_id)) == before
        said = [(one["what"], one["token"]) for one in drive.refusals(task_id)]
        assert said == [("start", token), ("requeue", token), ("end as completed", token)]

    def test_an_old_token_is_refused_and_logged(self, drive: Driver) -> None:
        """Whoever held a task before its retry can say nothing about it any more; each try is an event."""
        old = drive.run_one()
        drive.finish(old, Status.LOST)
        drive.store.retry(old.task.id, by="bob", now=NOW)
        [new] = drive.claim_task(old.task.id)
        self._come_too_late(drive, old.task.id, old.token)
        drive.start(new)
        assert drive.finish(new)

    def test_a_token_that_was_never_given_is_refused_and_logged(self, drive: Driver) -> None:
        """A larger token than the task's is as wrong as a smaller one."""
        claim = drive.claim_one()
        self._come_too_late(drive, claim.task.id, claim.token + 1)

    def test_an_end_counts_once(self, drive: Driver) -> None:
        """Recording the same end again is refused and logged, and charges nobody twice."""
        claim = drive.run_one()
        drive.add()
        assert drive.finish(claim, held=50.0)
        standing = drive.look().candidates[0].standing
        assert not drive.finish(claim, Status.FAILED, held=50.0)
        assert drive.look().candidates[0].standing == standing
        assert drive.status(claim.task.id) is Status.COMPLETED
        assert drive.refusals(claim.task.id) == [
            {"what": "end as failed", "token": claim.token, "current": claim.token}
        ]

    def test_a_running_task_is_never_taken_back(self, drive: Driver) -> None:
        """What has started may have done something: it cannot be queued as if it had not."""
        claim = drive.run_one()
        with pytest.raises(StaleTokenError):
            drive.unclaim(claim)
        assert drive.status(claim.task.id) is Status.RUNNING
        assert drive.refusals(claim.task.id) != []

    def test_unknown_tasks_have_no_attempts(self, drive: Driver) -> None:
        """Starting or taking back what is not there is refused by name."""
        with pytest.raises(NoSuchTaskError):
            drive.store.started("nobody", 1, started_at=NOW, holder=HOLDER)
        with pytest.raises(NoSuchTaskError):
            drive.store.unclaim("nobody", 1, reason="", now=NOW, evidence={})

    # ------------------------------------------------------------------ the table

    @pytest.mark.parametrize("before", sorted(Status))
    @pytest.mark.parametrize("after", sorted(Status))
    def test_there_is_no_way_outside_the_table(self, drive: Driver, before: Status, after: Status) -> None:
        """From every state into every other: possible where the table says so, else refused by a named error."""
        claim = _bring_to(drive, before)
        # The table lets a waiting task fail; nothing does that yet.
        legal = after in LEGAL[before] and (before, after) != (Status.QUEUED, Status.FAILED)
        with nullcontext() if legal else pytest.raises(RefusedError):
            _move(drive, claim, after)
        assert drive.status(claim.task.id) is (after if legal else before)


def _bring_to(drive: Driver, status: Status) -> Claim:
    claim = drive.claim_one()
    if status is Status.QUEUED:
        drive.unclaim(claim)
    elif status is not Status.CLAIMED:
        drive.start(claim)
        if status is not Status.RUNNING:
            assert drive.finish(claim, status)
    return claim


def _move(drive: Driver, claim: Claim, after: Status) -> None:
    """Do what leads to a state; raises where the store refuses."""
    task = drive.store.get(claim.task.id)
    if after is Status.CLAIMED:
        if not drive.claim_task(task.id):
            raise RefusedError("the claim was left out")
    elif after is Status.RUNNING:
        drive.start(claim)
    elif after is Status.QUEUED:
        drive.unclaim(claim) if task.status in ACTIVE else drive.store.retry(task.id, by="bob", now=drive.now)
    elif after is Status.CANCELLED and task.status is Status.QUEUED:
        drive.store.cancel(task.id, by="bob", now=drive.now)
    elif not drive.finish(claim, after):
        raise RefusedError("the store did not take the end")
