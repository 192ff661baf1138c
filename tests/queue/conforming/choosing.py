"""Who can be next, and who gets it when several try."""

import pytest
from tests.queue.conforming.base import Conforming
from tests.queue.driver import HOUR, NOW, Driver, MakeStore, picked, picked_users, users_of

from fairlead.queue.decide import Pick, decide
from fairlead.queue.states import Status


class Choosing(Conforming):
    """snapshot, candidate, claim."""

    # ------------------------------------------------------------------ who is looked at

    def test_nobody_waits(self, drive: Driver) -> None:
        """An empty queue has no candidates and is not paused."""
        snapshot = drive.look()
        assert (snapshot.candidates, snapshot.paused, snapshot.free_slots) == ((), False, 4)

    def test_a_candidate_shows_the_head_of_each_priority(self, drive: Driver) -> None:
        """Of each priority the first task alone can be next, so no other is shown."""
        ids = [drive.add(priority=rank) for rank in (2, 2, 0, 3)]
        [candidate] = drive.look().candidates
        [lane] = candidate.lanes
        assert (candidate.user, lane.project) == ("alice", "site")
        assert {(head.task_id, head.rank) for head in lane.heads} == {(ids[0], 2), (ids[2], 0), (ids[3], 3)}

    def test_no_more_users_are_shown_than_slots_are_free(self, drive: Driver) -> None:
        """The look does not grow with the number of users; without a free slot nobody is shown."""
        for number in range(5):
            drive.add(f"u{number}")
        assert [len(drive.look(free=free).candidates) for free in (3, 0, -1)] == [3, 0, 0]

    def test_excluded_users_are_passed_over(self, drive: Driver) -> None:
        """Whoever has a foreign lock file is left out, and the next one takes his place."""
        drive.add("alice")
        drive.add("bob")
        assert users_of(drive.look(["alice"], free=1)) == ["bob"]
        assert [claim.task.spec.user for claim in drive.claim(["alice"])] == ["bob"]

    def test_locked_users_are_passed_over(self, drive: Driver) -> None:
        """A user whose task runs, or whose lock a person holds, is left out before the limit."""
        drive.run_one("alice")
        drive.add("alice")
        drive.hold("bob")
        drive.add("bob")
        drive.add("carol")
        assert users_of(drive.look(free=1)) == ["carol"]

    def test_a_lock_may_come_before_its_users_first_task(self, drive: Driver) -> None:
        """A hold on somebody the store has never heard of works when his first task comes."""
        lock_id = drive.hold("dave")
        task_id = drive.add("dave")
        assert drive.claim() == []
        assert lock_id
        assert drive.release(lock_id)
        assert [claim.task.id for claim in drive.claim()] == [task_id]

    def test_one_user_for_explaining(self, drive: Driver) -> None:
        """A single user is shown with all his projects, paused ones marked, an express task at the head."""
        drive.add(project="a")
        express = drive.add(project="b", priority=0, express=True)
        drive.store.pause("project:a", by="op", reason="", now=NOW)
        candidate = drive.store.candidate("alice")
        assert {lane.project: lane.paused for lane in candidate.lanes} == {"a": True, "b": False}
        assert [lane.heads[0].task_id for lane in candidate.lanes if lane.project == "b"] == [express]
        assert drive.store.candidate("nobody").lanes == ()

    # ------------------------------------------------------------------ pauses

    def test_paused_users_do_not_hide_others(self, drive: Driver) -> None:
        """However many paused users stand first, whoever can start is found behind them."""
        for number in range(6):
            drive.add(f"a{number}")
            drive.store.pause(f"user:a{number}", by="op", reason="", now=NOW)
        drive.add("zoe")
        assert users_of(drive.look(free=1)) == ["zoe"]

    def test_users_of_paused_projects_do_not_hide_others(self, drive: Driver) -> None:
        """However many users wait in paused projects alone, whoever can start is found behind them."""
        for number in range(6):
            drive.add(f"a{number}", "frozen")
        drive.add("zoe")
        drive.store.pause("project:frozen", by="op", reason="", now=NOW)
        assert users_of(drive.look(free=1)) == ["zoe"]
        drive.slots = 1
        assert [claim.task.spec.user for claim in drive.claim()] == ["zoe"]

    def test_a_paused_project_leaves_the_users_others(self, drive: Driver) -> None:
        """Its user goes on with the rest of his work."""
        drive.add(project="frozen")
        other = drive.add(project="site")
        drive.store.pause("project:frozen", by="op", reason="", now=NOW)
        assert picked(drive.look()) == [other]

    def test_a_pause_of_all_stops_every_start(self, drive: Driver) -> None:
        """The decision says so of everybody, and nothing is picked."""
        drive.add()
        drive.store.pause("all", by="op", reason="", now=NOW)
        snapshot = drive.look()
        assert snapshot.paused
        assert decide(snapshot).picks == ()
        assert drive.store.resume("all", by="op", now=NOW)
        assert len(drive.claim()) == 1

    @pytest.mark.parametrize("scope", ["all", "user:alice", "project:site"])
    def test_a_pause_after_the_decision_still_counts(self, drive: Driver, scope: str) -> None:
        """Once `pause` has returned, nothing starts in that scope, even if it was picked before."""
        task_id = drive.add()
        picks = decide(drive.look()).picks
        drive.store.pause(scope, by="op", reason="", now=NOW)
        assert drive.store.claim(picks, drive.terms()) == []
        assert drive.status(task_id) is Status.QUEUED

    # ------------------------------------------------------------------ express

    def test_an_operators_critical_task_goes_first(self, drive: Driver) -> None:
        """It is found although its user is far from being next, and although slots are few."""
        drive.serve("olga", 500)
        drive.add("alice")
        express = drive.add("olga", priority=0, express=True)
        drive.add("olga", "second")
        assert picked(drive.look(free=1)) == [express]

    def test_a_user_with_an_express_task_is_shown_once(self, drive: Driver) -> None:
        """No slot is given away to a second task of the same user."""
        express = drive.add("olga", priority=0, express=True)
        drive.add("olga", "second")
        other = drive.add("alice")
        assert sorted(users_of(drive.look())) == ["alice", "olga"]
        assert picked(drive.look(free=2)) == [express, other]

    @pytest.mark.parametrize("scope", ["user:olga", "project:site"])
    def test_express_respects_pauses(self, drive: Driver, scope: str) -> None:
        """Not even an operator's critical task starts where starting is paused."""
        drive.add("olga", "site", priority=0, express=True)
        drive.store.pause(scope, by="op", reason="", now=NOW)
        assert drive.look().candidates == ()
        drive.store.resume(scope, by="op", now=NOW)
        assert users_of(drive.look()) == ["olga"]

    def test_express_respects_locks(self, drive: Driver) -> None:
        """Its user's running task, hold or foreign file keeps it like any other."""
        drive.add("olga", priority=0, express=True)
        assert drive.look(["olga"]).candidates == ()
        lock_id = drive.hold("olga")
        assert drive.look().candidates == ()
        assert lock_id
        drive.release(lock_id)
        drive.claim()
        drive.add("olga", priority=0, express=True)
        assert drive.look().candidates == ()

    # ------------------------------------------------------------------ claiming

    def test_a_task_is_claimed_once(self, drive: Driver, make_store: MakeStore) -> None:
        """A second claim of the same picks, by the same or by another process, gets nothing."""
        drive.add("alice")
        drive.add("bob")
        picks = decide(drive.look()).picks
        assert len(drive.store.claim(picks, drive.terms())) == 2
        assert drive.store.claim(picks, drive.terms()) == []
        assert make_store().claim(picks, drive.terms()) == []

    def test_claims_fill_the_slots_and_no_more(self, drive: Driver) -> None:
        """However many are picked, the slots bound what is claimed, counted in the same transaction."""
        drive.slots = 3
        drive.run_one("u0")
        picks = []
        for number in range(1, 6):
            task_id = drive.add(f"u{number}")
            picks.append(Pick(task_id=task_id, user=f"u{number}", project="site"))
        assert [claim.task.spec.user for claim in drive.store.claim(picks, drive.terms())] == ["u1", "u2"]
        assert drive.store.claim(picks[2:], drive.terms()) == []

    def test_one_task_per_user(self, drive: Driver) -> None:
        """Of two picks of one user the first is claimed; the second is left out, and others are not concerned."""
        first, second = drive.add_many(2)
        other = drive.add("bob")
        picks = [Pick(task_id=one, user="alice", project="site") for one in (first, second)]
        claims = drive.store.claim([*picks, Pick(task_id=other, user="bob", project="site")], drive.terms())
        assert [claim.task.id for claim in claims] == [first, other]

    def test_a_pick_under_another_name_is_left_out(self, drive: Driver) -> None:
        """A task cannot be claimed under another user's lock."""
        task_id = drive.add("alice")
        assert drive.store.claim([Pick(task_id=task_id, user="bob", project="site")], drive.terms()) == []
        drive.add("bob")
        assert drive.store.claim([Pick(task_id=task_id, user="bob", project="site")], drive.terms()) == []
        assert drive.store.locks() == []

    def test_a_hold_after_the_decision_still_counts(self, drive: Driver) -> None:
        """Whoever took the user's lock between look and claim keeps it."""
        drive.add()
        picks = decide(drive.look()).picks
        assert drive.hold()
        assert drive.store.claim(picks, drive.terms()) == []

    # ------------------------------------------------------------------ serialization switched off

    def test_without_serialization_a_user_runs_in_parallel(self, drive: Driver) -> None:
        """Each task has a lock of its own then."""
        drive.serialized = False
        ids = drive.add_many(3)
        claims = [*drive.claim(), *drive.claim(), *drive.claim()]
        assert [claim.task.id for claim in claims] == ids
        assert sorted(lock.name for lock in drive.store.locks()) == sorted(f"task:{one}" for one in ids)

    def test_a_persons_hold_counts_without_serialization_too(self, drive: Driver) -> None:
        """Whoever keeps agents away from a tree keeps all of them away, also those picked before."""
        drive.serialized = False
        drive.add()
        picks = decide(drive.look()).picks
        assert drive.hold()
        assert drive.look().candidates == ()
        assert drive.store.claim(picks, drive.terms()) == []

    def test_switching_serialization_on_waits_for_what_runs(self, drive: Driver) -> None:
        """Tasks that were started in parallel end first: until then nothing else of that user starts."""
        drive.serialized = False
        first, second, waiting = drive.add_many(3)
        claims = [*drive.claim_task(first), *drive.claim_task(second)]
        drive.serialized = True
        for claim in claims:
            assert drive.look().candidates == ()
            assert drive.claim_task(waiting) == []
            assert drive.hold() is None
            assert drive.finish(claim)
        assert [claim.task.id for claim in drive.claim()] == [waiting]

    def test_a_quarantined_lock_of_a_task_keeps_that_task(self, drive: Driver) -> None:
        """Without serialization too, a task whose last run may still live is not started again."""
        drive.serialized = False
        claim = drive.run_one()
        drive.finish(claim, Status.LOST, quarantine=True)
        drive.store.retry(claim.task.id, by="bob", now=NOW)
        assert drive.claim() == []
        assert drive.release(claim.lock_id)
        assert [again.task.id for again in drive.claim()] == [claim.task.id]

    @pytest.mark.parametrize("express", [False, True])
    def test_a_quarantined_lock_of_a_task_stops_nobody_else(self, drive: Driver, express: bool) -> None:  # noqa: FBT001
        """With one slot, the same project's next task, another project's and another user's are found behind it."""
        drive.serialized = False
        kept = self._kept(drive, express=express)
        assert drive.look(free=1).candidates == ()
        assert drive.store.candidate("alice").lanes[0].heads == ()
        others = [drive.add(priority=3), drive.add(project="shop"), drive.add("bob")]
        assert sorted(drive.drain()) == sorted(others)
        assert drive.status(kept) is Status.QUEUED

    def test_a_quarantined_lock_of_a_task_keeps_it_with_serialization_too(self, drive: Driver) -> None:
        """The run that may still live was started without; its task is not claimed under the user's lock either."""
        drive.serialized = False
        kept = self._kept(drive)
        drive.serialized = True
        assert drive.look().candidates == ()
        assert drive.claim_task(kept) == []
        assert drive.hold("alice")

    def test_nobody_saves_up_behind_a_quarantined_lock_of_a_task(self, drive: Driver) -> None:
        """Who had nothing else to start comes back at the level of the others; who had, has taken part all the time."""
        drive.serialized = False
        for user in ("alice", "carol", "dave"):
            self._kept(drive, user)
        drive.add("carol", "shop")
        drive.add("dave")
        low = {user: drive.store.candidate(user).standing for user in ("alice", "carol", "dave")}
        drive.run_one("bob")
        drive.serve("bob", 1000)
        drive.add("bob")
        for lock in drive.store.locks():
            if lock.state == "quarantined":
                assert drive.release(lock.lock_id)
        lifted = {user for user, before in low.items() if drive.store.candidate(user).standing > before}
        assert lifted == {"alice"}

    def _kept(self, drive: Driver, user: str = "alice", *, express: bool = False) -> str:
        """A task that was retried while the lock of its last run is in quarantine."""
        claim = drive.run_one(user, priority=0, express=express)
        drive.finish(claim, Status.LOST, quarantine=True)
        drive.store.retry(claim.task.id, by="bob", now=drive.now)
        return claim.task.id

    def test_a_lock_freed_by_force_lets_nobody_in_while_the_task_is_active(self, drive: Driver) -> None:
        """The row is gone, but the task that ran under it has not ended: nobody runs beside it."""
        claim = drive.run_one()
        waiting = drive.add()
        assert drive.release(claim.lock_id)
        assert drive.look().candidates == ()
        assert drive.claim_task(waiting) == []
        assert drive.finish(claim)
        assert [again.task.id for again in drive.claim()] == [waiting]

    def test_a_lock_freed_by_force_does_not_come_back_with_quarantine(self, drive: Driver) -> None:
        """An end that would have kept the lock is recorded; a lock that is gone cannot be kept."""
        claim = drive.run_one()
        assert drive.release(claim.lock_id)
        assert drive.finish(claim, Status.LOST, quarantine=True)
        assert drive.store.locks() == []

    # ------------------------------------------------------------------ ageing

    def test_waiting_is_worth_priority(self, drive: Driver) -> None:
        """After an hour a low task goes before a medium one that has just come."""
        low = drive.add(priority=3)
        medium = drive.add(priority=2)
        assert picked(drive.look()) == [medium]
        drive.store.cancel(medium, by="x", now=drive.now)
        drive.now += HOUR + 1
        drive.add(priority=2)
        assert picked(drive.look()) == [low]

    @pytest.mark.parametrize("how", ["run_at", "retry"])
    def test_low_never_starves_behind_one_that_has_just_joined(self, drive: Driver, how: str) -> None:
        """A task that entered first but became due last does not hide how long the others have waited."""
        first = drive.add(priority=3, run_at=NOW + 10 * HOUR if how == "run_at" else None)
        if how == "retry":
            drive.store.cancel(first, by="x", now=NOW)
        low = drive.add(priority=3)
        drive.now += 10 * HOUR
        if how == "retry":
            drive.store.retry(first, by="x", now=drive.now)
        else:
            assert drive.store.promote_due(drive.now) == 1
        drive.add(priority=1)
        assert picked(drive.look()) == [low]

    def test_low_never_starves_behind_another_date(self, drive: Driver) -> None:
        """Of two dated tasks the one that has been due for long shows its age, although it entered second."""
        drive.add(priority=3, run_at=NOW + 10 * HOUR)
        low = drive.add(priority=3, run_at=NOW + HOUR)
        for hours in (1, 9):
            drive.now += hours * HOUR
            assert drive.store.promote_due(drive.now) == 1
        drive.add(priority=1)
        assert picked(drive.look()) == [low]

    def test_express_tasks_go_by_their_place(self, drive: Driver) -> None:
        """An operator's critical task that has just become due goes behind one that waits."""
        drive.add("olga", priority=0, express=True, run_at=NOW + HOUR)
        waiting = drive.add("oleg", priority=0, express=True)
        drive.now += HOUR
        drive.store.promote_due(drive.now)
        assert picked(drive.look(free=1)) == [waiting]

    def test_the_least_served_user_is_next(self, drive: Driver) -> None:
        """Time held decides across users, whatever the priorities."""
        for user, rank in (("alice", 0), ("alice", 0), ("bob", 3), ("bob", 3)):
            drive.add(user, priority=rank)
        for claim, held in zip(drive.claim(), (100.0, 10.0), strict=True):
            drive.finish(claim, held=held)
        assert picked_users(drive.look()) == ["bob", "alice"]
