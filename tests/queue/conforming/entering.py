"""Entering the queue, and leaving it without having run."""

import pytest
from tests.queue.conforming.base import Conforming
from tests.queue.driver import DAY, HOUR, NOW, Driver, MakeStore, a_spec, picked

from fairlead.base.ids import new_id
from fairlead.queue.errors import NoSuchTaskError, StaleVersionError
from fairlead.queue.states import IllegalTransitionError, Status
from fairlead.queue.store import Submission
from fairlead.queue.task import Changes


class Entering(Conforming):
    """add, promote_due, next_due, cancel, retry, update."""

    # ------------------------------------------------------------------ add

    def test_a_task_enters_as_it_was_given(self, drive: Driver) -> None:
        """Every field of the request is there again, and the task waits."""
        spec = a_spec(priority=1, title="t", prompt="p", payload={"a": [1, None]}, env={"A": "b"}, timeout=5.0)
        [admitted] = drive.submit(spec)
        task = drive.store.get(admitted.id)
        assert admitted.new
        assert (task.spec, task.status, task.version, task.attempt) == (spec, Status.QUEUED, 1, 0)
        assert (task.created_at, task.updated_at, task.priority) == (NOW, NOW, "high")
        assert drive.events(task.id) == ["queued"]

    def test_a_known_id_is_a_no_op(self, drive: Driver) -> None:
        """Adding an id again changes nothing, in the same batch or later, whatever it carries."""
        item = Submission(id=new_id(NOW), spec=a_spec(title="first"), created_at=NOW)
        other = Submission(id=item.id, spec=a_spec("bob", title="second"), created_at=NOW)
        first = drive.store.add([item, item, other], now=NOW, warn_at=9, refuse_at=9)
        second = drive.store.add([other], now=NOW, warn_at=9, refuse_at=9)
        assert [one.new for one in first + second] == [True, False, False, False]
        assert drive.store.get(item.id).spec.title == "first"
        assert drive.events(item.id) == ["queued"]

    def test_too_many_are_refused_with_a_sentence(self, drive: Driver) -> None:
        """At the maximum a user's next task is refused and leaves nothing behind; others are not concerned."""
        results = drive.submit(*[a_spec() for _ in range(4)], a_spec("bob"), refuse_at=3)
        assert [one.new for one in results] == [True, True, True, False, True]
        assert "alice has 3 tasks waiting" in results[3].refusal
        assert "limits.pending_max is 3" in results[3].refusal
        with pytest.raises(NoSuchTaskError):
            drive.store.get(results[3].id)
        assert drive.events(results[3].id) == []

    def test_together_all_enter_or_none(self, drive: Driver) -> None:
        """Without room for one of a submission none of it enters, whoever's the others are; with room all do."""
        items = [
            Submission(id=new_id(NOW), spec=a_spec(user), created_at=NOW) for user in ("alice", "bob", "alice", "alice")
        ]
        refused = drive.store.add(items, now=NOW, warn_at=9, refuse_at=2, together=True)
        sentence = (
            "user alice has 0 tasks waiting, and 3 more come at once, limits.pending_max is 2: "
            "wait for some to finish, or cancel some."
        )
        assert [(one.new, one.refusal) for one in refused] == [(False, sentence)] * 4
        assert (drive.events(), drive.look().candidates) == ([], ())
        assert all(one.new for one in drive.store.add(items, now=NOW, warn_at=9, refuse_at=3, together=True))
        again = drive.store.add(items, now=NOW, warn_at=9, refuse_at=3, together=True)
        assert [(one.new, one.refusal) for one in again] == [(False, "")] * 4

    def test_a_place_that_became_free_can_be_taken(self, drive: Driver) -> None:
        """The maximum counts waiting tasks, not those that run or have ended."""
        [claim] = drive.claim_task(drive.submit(a_spec(), refuse_at=1)[0].id)
        assert drive.submit(a_spec(), refuse_at=1)[0].new
        assert drive.submit(a_spec(), refuse_at=1)[0].refusal
        drive.finish(claim)
        assert drive.submit(a_spec(), refuse_at=1)[0].refusal

    def test_a_warning_comes_from_the_given_number_on(self, drive: Driver) -> None:
        """The task that makes it so many is taken in, with a warning; the one before has none."""
        [first] = drive.submit(a_spec(), warn_at=2)
        [second] = drive.submit(a_spec(), warn_at=2)
        assert first.warning == ""
        assert "alice has 2 tasks waiting" in second.warning
        assert second.new

    def test_an_empty_batch_is_nothing(self, drive: Driver) -> None:
        """Adding no tasks is allowed."""
        assert drive.submit() == []

    def test_first_in_first_out(self, drive: Driver) -> None:
        """Tasks of one priority run in the order in which they came, whatever their ids."""
        ids = [new_id(NOW + moment) for moment in (5, 3, 9, 1)]
        for task_id in ids:
            drive.store.add([Submission(id=task_id, spec=a_spec(), created_at=NOW)], now=NOW, warn_at=9, refuse_at=9)
        assert drive.drain() == ids

    def test_priority_orders_a_users_own_tasks(self, drive: Driver) -> None:
        """Critical before high before medium before low, however they came."""
        ids = {rank: drive.add(priority=rank) for rank in (3, 1, 2, 0)}
        assert drive.drain() == [ids[0], ids[1], ids[2], ids[3]]

    # ------------------------------------------------------------------ tasks with a date

    def test_a_task_waits_for_its_time(self, drive: Driver) -> None:
        """Before `run_at` a task cannot be claimed; from then on it can."""
        task_id = drive.add(run_at=NOW + HOUR)
        assert drive.store.next_due() == NOW + HOUR
        assert drive.claim() == []
        assert drive.claim_task(task_id) == []
        assert drive.store.promote_due(NOW + HOUR - 1) == 0
        drive.now += HOUR
        assert drive.store.promote_due(drive.now) == 1
        assert drive.store.next_due() is None
        assert [claim.task.id for claim in drive.claim()] == [task_id]

    def test_a_time_in_the_past_is_now(self, drive: Driver) -> None:
        """A `run_at` that is over does not keep a task."""
        assert drive.claim_task(drive.add(run_at=NOW - HOUR))

    def test_the_next_time_is_the_earliest(self, drive: Driver) -> None:
        """Of several dates the first one comes next; without any there is none."""
        assert drive.store.next_due() is None
        drive.add(run_at=NOW + 2 * HOUR)
        drive.add(run_at=NOW + HOUR)
        assert drive.store.next_due() == NOW + HOUR

    def test_many_come_due_in_portions(self, drive: Driver) -> None:
        """However many come due at once, asking again and again lets all of them in, oldest date first."""
        drive.submit(*[a_spec(run_at=NOW + 1 + number % 7) for number in range(1500)])
        drive.now += HOUR
        portions = []
        while count := drive.store.promote_due(drive.now):
            portions.append(count)
        assert sum(portions) == 1500
        assert len(portions) > 1

    def test_a_file_from_before_the_clock_was_set_back_does_not_wait(self, drive: Driver) -> None:
        """A task that was made, by its id, a day after now is due all the same: only `run_at` delays."""
        item = Submission(id=new_id(NOW + DAY), spec=a_spec(), created_at=NOW + DAY)
        drive.store.add([item], now=NOW, warn_at=9, refuse_at=9)
        assert drive.store.next_due() is None
        snapshot = drive.look()
        assert snapshot.candidates[0].lanes[0].heads[0].since <= snapshot.now
        assert drive.claim_task(item.id)

    def test_what_comes_due_stands_behind_those_who_wait(self, drive: Driver) -> None:
        """Dated tasks queue up as their times come, those of the same time in the order in which they entered."""
        late = drive.add(run_at=NOW + 2 * HOUR)
        twins = [drive.add(run_at=NOW + HOUR) for _ in range(2)]
        waiting = drive.add()
        drive.now += 3 * HOUR
        drive.store.promote_due(drive.now)
        fresh = drive.add()
        assert drive.drain() == [waiting, *twins, late, fresh]

    def test_a_task_whose_date_is_changed_stands_at_the_end(self, drive: Driver) -> None:
        """Its waiting is counted anew, so that its place is a new one too, whether it was due before or not."""
        dated, due = drive.add(run_at=NOW + HOUR), drive.add(run_at=NOW - HOUR)
        waiting = drive.add()
        for task_id in (dated, due):
            drive.store.update(task_id, 1, Changes(run_at=None), now=NOW)
        assert drive.drain() == [waiting, dated, due]

    # ------------------------------------------------------------------ cancel

    @pytest.mark.parametrize("run_at", [None, NOW + HOUR])
    def test_a_waiting_task_is_cancelled_at_once(self, drive: Driver, run_at: int | None) -> None:
        """It ends with a word about who did it, due or not, and never runs."""
        task_id = drive.add(run_at=run_at)
        task = drive.store.cancel(task_id, by="bob", now=NOW)
        assert task == drive.store.get(task_id)
        assert (task.status, task.finished_at, task.version) == (Status.CANCELLED, NOW, 2)
        assert task.outcome
        assert task.outcome.error == "cancelled by bob before it started"
        drive.now += 2 * HOUR
        assert drive.store.promote_due(drive.now) == 0
        assert drive.claim() == []
        assert drive.events(task_id) == ["queued", "cancelled"]

    def test_an_active_task_is_asked_to_stop(self, drive: Driver) -> None:
        """The wish is noted on it, with the first who had it; its state does not change."""
        claim = drive.run_one()
        assert drive.store.cancel(claim.task.id, by="bob", now=NOW).status is Status.RUNNING
        task = drive.store.cancel(claim.task.id, by="carol", now=NOW)
        assert (task.status, task.cancel) == (Status.RUNNING, "bob")
        assert drive.events(claim.task.id)[-2:] == ["cancel_requested"] * 2

    def test_a_finished_task_cannot_be_cancelled(self, drive: Driver) -> None:
        """What has ended stays as it ended."""
        claim = drive.run_one()
        drive.finish(claim, Status.FAILED)
        with pytest.raises(IllegalTransitionError, match="is failed and cannot become cancelled"):
            drive.store.cancel(claim.task.id, by="bob", now=NOW)
        assert drive.status(claim.task.id) is Status.FAILED

    # ------------------------------------------------------------------ retry

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.LOST])
    def test_what_went_wrong_can_be_retried(self, drive: Driver, status: Status) -> None:
        """A failed, cancelled or lost task waits again, with nothing left of its last run but the attempt."""
        claim = drive.run_one()
        drive.store.cancel(claim.task.id, by="bob", now=NOW)
        drive.finish(claim, status)
        task = drive.store.retry(claim.task.id, by="bob", now=drive.now)
        assert (task.status, task.outcome, task.cancel) == (Status.QUEUED, None, None)
        assert (task.started_at, task.finished_at, task.archived) == (None, None, False)
        [again] = drive.claim_task(task.id)
        assert (again.task.attempt, again.token > claim.token) == (2, True)
        assert [attempt.status for attempt in drive.store.attempts(task.id)] == [status, None]

    @pytest.mark.parametrize("status", [Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.COMPLETED])
    def test_nothing_else_can_be_retried(self, drive: Driver, status: Status) -> None:
        """A task that waits, runs or has succeeded is not sent through the queue again, and no account moves."""
        claim = drive.claim_one()
        if status is Status.QUEUED:
            drive.unclaim(claim)
        elif status is not Status.CLAIMED:
            drive.start(claim)
        if status is Status.COMPLETED:
            drive.finish(claim)
        with pytest.raises(
            IllegalTransitionError, match=f"is {status} and cannot be retried; only these can: cancelled, "
        ):
            drive.store.retry(claim.task.id, by="bob", now=NOW)
        assert drive.status(claim.task.id) is status

    def test_a_cancelled_task_keeps_its_date(self, drive: Driver) -> None:
        """Retrying does not start a task before its `run_at`."""
        task_id = drive.add(run_at=NOW + HOUR)
        drive.store.cancel(task_id, by="bob", now=NOW)
        drive.store.retry(task_id, by="bob", now=NOW)
        assert drive.claim() == []
        assert drive.store.next_due() == NOW + HOUR

    def test_a_retried_task_waits_at_the_end_of_the_line(self, drive: Driver) -> None:
        """It goes behind the tasks of its priority that wait already, and before those that come later."""
        claim = drive.run_one()
        waiting = drive.add()
        drive.finish(claim, Status.FAILED)
        drive.store.retry(claim.task.id, by="bob", now=drive.now)
        later = drive.add()
        assert drive.drain() == [waiting, claim.task.id, later]

    def test_a_task_taken_back_keeps_its_place(self, drive: Driver) -> None:
        """A claim that never started costs a task nothing: it is the next again."""
        claim = drive.claim_one()
        later = drive.add()
        drive.unclaim(claim)
        assert drive.drain() == [claim.task.id, later]

    # ------------------------------------------------------------------ update

    def test_a_waiting_task_can_be_changed(self, drive: Driver) -> None:
        """Priority, date and title change, the rest stays, and the version counts up."""
        first, second = drive.add(priority=2), drive.add(priority=2, title="old", prompt="p")
        changed = drive.store.update(second, 1, Changes(priority=1, title="new"), now=NOW)
        assert changed == drive.store.get(second)
        assert (changed.spec.priority, changed.spec.title, changed.spec.prompt) == (1, "new", "p")
        assert changed.version == 2
        assert drive.drain() == [second, first]

    def test_whether_a_task_is_express_can_be_changed(self, drive: Driver) -> None:
        """It goes before everybody's from then on, or no longer; changes of something else leave that alone."""
        drive.serve("olga", 500)
        other, task_id = drive.add("alice"), drive.add("olga")
        drive.store.update(task_id, 1, Changes(priority=0, express=True), now=drive.now)
        drive.store.update(task_id, 2, Changes(title="new"), now=drive.now)
        assert picked(drive.look(free=1)) == [task_id]
        drive.store.update(task_id, 3, Changes(priority=3, express=False), now=drive.now)
        assert picked(drive.look(free=1)) == [other]

    def test_who_read_an_old_version_changes_nothing(self, drive: Driver) -> None:
        """The second of two who read the same version is refused."""
        task_id = drive.add()
        drive.store.update(task_id, 1, Changes(title="mine"), now=NOW)
        with pytest.raises(StaleVersionError, match="queued at version 2, not queued at version 1"):
            drive.store.update(task_id, 1, Changes(title="yours"), now=NOW)
        assert drive.store.get(task_id).spec.title == "mine"

    def test_only_waiting_tasks_change(self, drive: Driver) -> None:
        """A task that was claimed meanwhile is refused, even with its present version."""
        claim = drive.claim_one()
        with pytest.raises(StaleVersionError, match="is claimed at version 2"):
            drive.store.update(claim.task.id, 2, Changes(priority=0), now=NOW)

    def test_a_date_can_be_given_and_taken_away(self, drive: Driver) -> None:
        """A task with a new date waits for it; without one it can run at once."""
        task_id = drive.add()
        drive.store.update(task_id, 1, Changes(run_at=NOW + HOUR), now=NOW)
        assert drive.claim() == []
        assert drive.store.next_due() == NOW + HOUR
        drive.store.update(task_id, 2, Changes(run_at=None), now=NOW)
        assert drive.store.next_due() is None
        assert [claim.task.id for claim in drive.claim()] == [task_id]

    def test_a_new_title_does_not_change_how_long_it_has_waited(self, drive: Driver) -> None:
        """What a task has earned by waiting since its retry stays what it is."""
        claim = drive.run_one(priority=3)
        drive.finish(claim, Status.FAILED)
        drive.pass_time(4 * 3600)
        other = drive.add(priority=2)
        drive.store.retry(claim.task.id, by="bob", now=drive.now)
        version = drive.store.get(claim.task.id).version
        drive.store.update(claim.task.id, version, Changes(title="new"), now=drive.now)
        assert picked(drive.look()) == [other]
        drive.store.cancel(other, by="bob", now=drive.now)
        drive.pass_time(4 * 3600)
        drive.store.update(claim.task.id, version + 1, Changes(title="newer"), now=drive.now)
        drive.add(priority=2)
        assert picked(drive.look()) == [claim.task.id]

    # ------------------------------------------------------------------ unknown tasks

    def test_an_unknown_task_is_refused_by_name(self, drive: Driver, make_store: MakeStore) -> None:
        """Whatever is asked about a task that is not there says so, in every process."""
        for store in (drive.store, make_store()):
            with pytest.raises(NoSuchTaskError, match="there is no task nobody"):
                store.get("nobody")
            with pytest.raises(NoSuchTaskError):
                store.cancel("nobody", by="bob", now=NOW)
            with pytest.raises(NoSuchTaskError):
                store.retry("nobody", by="bob", now=NOW)
            with pytest.raises(NoSuchTaskError):
                store.update("nobody", 1, Changes(), now=NOW)
