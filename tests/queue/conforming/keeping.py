"""Reading, archiving, forgetting, facts, and putting tasks back."""

from msgspec.structs import replace
from tests.queue.conforming.base import Conforming
from tests.queue.driver import DAY, HOLDER, HOUR, NOW, Driver, MakeStore, a_spec

from fairlead.base.ids import new_id
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.states import Status
from fairlead.queue.store import Ended, Filter, Lock, Restored, Submission
from fairlead.queue.task import Attempt, Event, Outcome, Task


class Keeping(Conforming):
    """get, find, list_tasks, attempts, events, last_event, note, unarchived, mark_archived, forget, facts, restore."""

    # ------------------------------------------------------------------ reading

    def test_ids_are_found_by_their_beginning_or_their_tail(self, drive: Driver) -> None:
        """A person types as much of an id as he likes, from the front or from behind the time."""
        ids = ["20270115-080000000-abcdefghjk", "20270115-080000001-abxxxxxxxx", "20270116-080000000-zzzzzzzzzz"]
        for task_id in ids:
            item = Submission(id=task_id, spec=a_spec(), created_at=NOW)
            drive.store.add([item], now=NOW, warn_at=9, refuse_at=9)
        assert drive.store.find("20270115") == ids[:2]
        assert drive.store.find(ids[0]) == [ids[0]]
        assert drive.store.find("ab") == ids[:2]
        assert drive.store.find("abx") == [ids[1]]
        assert drive.store.find("zzzzzzzzzz") == [ids[2]]
        assert drive.store.find("080000") == []
        assert drive.store.find("%") == []

    def test_finding_is_bounded(self, drive: Driver) -> None:
        """However many an empty text would mean, a few are enough to say that it is not enough."""
        drive.add_many(30)
        assert len(drive.store.find("")) == 20

    def test_lists_are_narrowed_and_newest_first(self, drive: Driver) -> None:
        """By user, project, status, or all of them, and no longer than asked for."""
        failed = drive.run_one("alice", "a")
        drive.finish(failed, Status.FAILED)
        running = drive.run_one("alice", "b")
        waiting = drive.add("bob", "a")
        everything = [waiting, running.task.id, failed.task.id]
        cases = {
            Filter(): everything,
            Filter(limit=2): everything[:2],
            Filter(user="alice"): everything[1:],
            Filter(user="alice", limit=1): everything[1:2],
            Filter(user="nobody"): [],
            Filter(project="a"): [waiting, failed.task.id],
            Filter(user="alice", project="a"): [failed.task.id],
            Filter(statuses=frozenset({Status.QUEUED, Status.FAILED})): [waiting, failed.task.id],
            Filter(statuses=frozenset({Status.FAILED}), user="alice"): [failed.task.id],
            Filter(statuses=frozenset({Status.FAILED}), user="bob"): [],
            Filter(statuses=frozenset({Status.LOST})): [],
        }
        found = {which: [task.id for task in drive.store.list_tasks(which)] for which in cases}
        assert found == cases

    def test_a_list_over_several_statuses_is_in_one_order(self, drive: Driver) -> None:
        """Newest first holds across the statuses, and the limit is for all of them together."""
        for number in range(12):
            claim = drive.claim_one()
            drive.finish(claim, Status.FAILED if number % 2 else Status.COMPLETED)
        drive.add()
        tasks = drive.store.list_tasks(Filter(user="alice", limit=5))
        assert [task.seq for task in tasks] == sorted((task.seq for task in tasks), reverse=True)
        newest = drive.store.list_tasks(Filter(limit=5))
        assert tasks == newest

    def test_events_are_told_in_order(self, drive: Driver) -> None:
        """Of all tasks or of one, after a given one, no more than asked for."""
        first, second = drive.add(), drive.add()
        drive.store.cancel(first, by="bob", now=NOW)
        events = drive.store.events()
        assert [event.task_id for event in events] == [first, second, first]
        assert drive.store.last_event() == events[-1].seq
        assert [event.seq for event in events] == sorted(event.seq for event in events)
        assert drive.store.events(after=events[0].seq) == events[1:]
        assert drive.store.events(limit=1) == events[:1]
        assert drive.store.events(task_id=first) == [events[0], events[2]]
        assert drive.store.events(task_id=first, after=events[0].seq, limit=1) == [events[2]]
        assert (events[2].event, events[2].user, events[2].status) == ("cancelled", "alice", Status.CANCELLED)

    def test_all_events_of_one_task_are_told(self, drive: Driver) -> None:
        """However many there are, the last one is among them; those of all tasks come in portions."""
        claim = drive.run_one()
        drive.store.finish([drive.end_of(claim)] * 1500, now=NOW)
        assert drive.events(claim.task.id)[:5] == ["queued", "claimed", "started", "completed", "refused"]
        assert len(drive.store.events(task_id=claim.task.id)) == 1503
        assert len(drive.store.events()) == 1000

    def test_anybody_may_note_an_event(self, drive: Driver) -> None:
        """What is written down comes back as it was, but for its number."""
        assert drive.store.last_event() == 0
        event = Event(at=NOW, event="rejected", user="alice", detail={"file": "x", "why": ["ü", 1]})
        drive.store.note(event)
        [told] = drive.store.events()
        assert replace(told, seq=0) == event
        assert told.seq == drive.store.last_event()

    # ------------------------------------------------------------------ archive and forgetting

    def test_only_finished_tasks_wait_for_the_archive(self, drive: Driver) -> None:
        """Oldest first, as many as asked for, and no more once they are marked."""
        drive.add("z")
        drive.run_one("y")
        done = [drive.run_one("x") for _ in range(1)]
        drive.finish(done[0])
        cancelled = drive.add("w")
        drive.store.cancel(cancelled, by="bob", now=NOW)
        tasks = drive.store.unarchived(9)
        assert [task.id for task in tasks] == [done[0].task.id, cancelled]
        assert [task.id for task in drive.store.unarchived(1)] == [done[0].task.id]
        drive.store.mark_archived({task.id: task.version for task in tasks})
        assert drive.store.unarchived(9) == []
        assert drive.store.get(cancelled).archived

    def test_a_task_that_was_retried_meanwhile_is_not_marked(self, drive: Driver) -> None:
        """The archive's file tells an older version: the task has to be archived again when it ends."""
        claim = drive.run_one()
        drive.finish(claim, Status.FAILED)
        [task] = drive.store.unarchived(9)
        drive.store.retry(task.id, by="bob", now=NOW)
        drive.store.mark_archived({task.id: task.version, "nobody": 1})
        assert not drive.store.get(task.id).archived
        [again] = drive.claim_task(task.id)
        drive.finish(again)
        assert [one.id for one in drive.store.unarchived(9)] == [task.id]

    def test_a_retried_task_is_archived_anew(self, drive: Driver) -> None:
        """A retry takes the mark away."""
        claim = drive.run_one()
        drive.finish(claim, Status.FAILED)
        drive.store.mark_archived({task.id: task.version for task in drive.store.unarchived(9)})
        assert not drive.store.retry(claim.task.id, by="bob", now=NOW).archived

    def _archived(self, drive: Driver, user: str = "alice") -> str:
        claim = drive.run_one(user)
        drive.finish(claim)
        drive.store.mark_archived({claim.task.id: drive.store.get(claim.task.id).version})
        return claim.task.id

    def test_old_archived_tasks_are_forgotten(self, drive: Driver) -> None:
        """With their attempts and events; younger ones and those not archived stay."""
        old = self._archived(drive)
        claim = drive.run_one("bob")
        drive.finish(claim)
        drive.now += DAY
        young = self._archived(drive)
        assert drive.store.forget(NOW + HOUR, 9) == [old]
        assert drive.store.forget(NOW + HOUR, 9) == []
        assert (drive.store.attempts(old), drive.store.events(task_id=old)) == ([], [])
        assert drive.status(young) is Status.COMPLETED
        assert drive.status(claim.task.id) is Status.COMPLETED

    def test_forgetting_comes_in_portions(self, drive: Driver) -> None:
        """No more than asked for go at once, oldest first."""
        ids = []
        for _ in range(3):
            ids.append(self._archived(drive))
            drive.pass_time(1)
        assert drive.store.forget(drive.now, 2) == ids[:2]
        assert drive.store.forget(drive.now, 2) == ids[2:]

    def test_old_locks_and_events_of_nobody_are_forgotten(self, drive: Driver) -> None:
        """Released locks and events without a task go by their age; held locks never."""
        gone, kept = drive.hold("alice"), drive.hold("bob")
        assert gone
        drive.release(gone)
        drive.store.forget(NOW + 1, 9)
        assert drive.store.past_lock(gone) is None
        assert drive.store.events() == []
        assert [lock.lock_id for lock in drive.store.locks()] == [kept]

    def test_a_task_that_a_lock_still_names_is_kept(self, drive: Driver) -> None:
        """Whoever has to decide about a quarantined lock can read what ran under it."""
        claim = drive.run_one()
        drive.finish(claim, Status.LOST, quarantine=True)
        drive.store.mark_archived({claim.task.id: drive.store.get(claim.task.id).version})
        assert drive.store.forget(NOW + DAY, 9) == []
        drive.release(claim.lock_id)
        assert drive.store.forget(NOW + DAY, 9) == [claim.task.id]

    # ------------------------------------------------------------------ facts

    def test_facts_are_remembered(self, drive: Driver, make_store: MakeStore) -> None:
        """By every process, each as it was last said."""
        drive.store.set_facts({"slots_max": "4", "ageing": "3600"})
        drive.store.set_facts({"slots_max": "8"})
        facts = make_store().facts()
        assert (facts["slots_max"], facts["ageing"]) == ("8", "3600")

    # ------------------------------------------------------------------ restoring

    def test_a_waiting_task_is_put_back(self, drive: Driver) -> None:
        """As the files tell it; it can be claimed, and an unknown outcome stays unknown."""
        task = _a_task(Status.QUEUED)
        later = replace(_a_task(Status.QUEUED), id=new_id(NOW), spec=a_spec("bob", run_at=NOW + HOUR))
        assert drive.store.restore([Restored(task=task), Restored(task=later)], now=NOW) == [True, True]
        assert replace(drive.store.get(task.id), seq=0) == task
        assert [claim.task.id for claim in drive.claim()] == [task.id]
        assert drive.store.next_due() == NOW + HOUR

    def test_a_known_task_is_not_put_back(self, drive: Driver) -> None:
        """What the store knows is newer than any file."""
        task_id = drive.add()
        task = replace(_a_task(Status.COMPLETED), id=task_id)
        assert drive.store.restore([Restored(task=task)], now=NOW) == [False]
        assert drive.status(task_id) is Status.QUEUED

    def test_a_finished_task_is_put_back(self, drive: Driver) -> None:
        """With its outcome and attempts, and never to be run again."""
        task = replace(_a_task(Status.COMPLETED), attempt=1, token=7, archived=True, finished_at=NOW)
        attempt = Attempt(number=1, token=7, claimed_at=NOW, finished_at=NOW, status=Status.COMPLETED, host="here")
        drive.store.restore([Restored(task=task, attempts=[attempt])], now=NOW)
        assert replace(drive.store.get(task.id), seq=0) == task
        assert drive.store.attempts(task.id) == [attempt]
        assert drive.claim() == []

    def test_a_running_task_is_put_back_with_its_lock(self, drive: Driver) -> None:
        """Its user is locked, its slot is taken, its end is recorded, and tokens go on above its own."""
        restored = _a_run(token=41)
        drive.store.restore([restored], now=NOW)
        drive.add("alice")
        assert drive.store.locks() == [restored.lock]
        assert drive.store.count_active() == 1
        assert drive.claim() == []
        other = drive.claim_one("bob")
        assert other.token > 41
        outcome = Outcome(status=Status.COMPLETED, reason="exit", finished_at=NOW)
        end = Ended(task_id=restored.task.id, token=41, outcome=outcome)
        assert drive.store.finish([end], now=NOW) == [True]
        assert [claim.task.spec.user for claim in drive.claim()] == ["alice"]

    def test_two_runs_of_one_user_are_both_guarded(self, drive: Driver) -> None:
        """Files may tell of two (serialization was off): each keeps a lock, and nothing starts before both ended."""
        first, second = _a_run(token=41), _a_run(token=42)
        drive.store.restore([first, second], now=NOW)
        drive.add("alice")
        assert {lock.token for lock in drive.store.locks()} == {41, 42}
        for restored in (first, second):
            assert drive.claim() == []
            outcome = Outcome(status=Status.LOST, reason="reboot", finished_at=NOW)
            end = Ended(task_id=restored.task.id, token=restored.task.token, outcome=outcome)
            assert drive.store.finish([end], now=NOW) == [True]
        assert len(drive.claim()) == 1

    def test_an_express_task_is_put_back_as_one(self, drive: Driver) -> None:
        """An operator's critical task keeps its place before everybody's."""
        drive.add("bob")
        task = replace(_a_task(Status.QUEUED), spec=a_spec(priority=0))
        drive.store.restore([Restored(task=task, express=True)], now=NOW)
        assert drive.look().candidates[0].lanes[0].heads[0].express

    def test_tokens_can_be_reserved(self, drive: Driver) -> None:
        """Numbers that may have been given out are left out."""
        first = drive.claim_one("alice")
        drive.store.reserve_tokens(1000)
        assert drive.claim_one("bob").token > first.token + 1000

    def test_a_forgotten_task_can_come_back(self, drive: Driver) -> None:
        """From the archive, as if it had never been away."""
        task_id = self._archived(drive)
        task, attempts = drive.store.get(task_id), drive.store.attempts(task_id)
        drive.store.forget(NOW + 1, 9)
        try:
            drive.store.get(task_id)
        except NoSuchTaskError:
            drive.store.restore([Restored(task=task, attempts=attempts)], now=NOW)
        assert replace(drive.store.get(task_id), seq=task.seq) == task


def _a_task(status: Status) -> Task:
    outcome = Outcome(status=status, reason="exit", finished_at=NOW) if status is Status.COMPLETED else None
    return Task(
        id=new_id(NOW), seq=0, spec=a_spec(), status=status, version=5, created_at=NOW, updated_at=NOW, outcome=outcome
    )


def _a_run(token: int) -> Restored:
    task = replace(_a_task(Status.RUNNING), attempt=1, token=token, started_at=NOW)
    lock = Lock(
        name="user:alice",
        lock_id=f"{task.id}_{token}",
        token=token,
        task_id=task.id,
        kind="run",
        state="held",
        acquired_at=NOW,
        expires_at=NOW + HOUR,
        holder=HOLDER,
    )
    attempt = Attempt(number=1, token=token, claimed_at=NOW, started_at=NOW, host="here")
    return Restored(task=task, attempts=[attempt], lock=lock)
