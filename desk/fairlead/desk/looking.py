"""Looking: the queue as a whole, one task, what happened, who holds locks."""

from collections.abc import Collection
from functools import lru_cache

import msgspec

from fairlead.base.bell import is_heard
from fairlead.base.errors import RefusedError
from fairlead.base.text import one_line
from fairlead.conductor.rundir import find_dir
from fairlead.config.places import directory_of
from fairlead.config.problems import ConfigError
from fairlead.desk.parts import Data, DeskPart
from fairlead.desk.usage import living_supervisor, usage_of
from fairlead.desk.views import event_view, foreign_view, lock_view, past_lock_view, public, summary
from fairlead.queue.admit import claimed_in
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.office import Office
from fairlead.queue.record import record_of
from fairlead.queue.rights import Caller, Deed
from fairlead.queue.services import SERVICES
from fairlead.queue.sqlite import overview
from fairlead.queue.states import ACTIVE, FINAL, Status
from fairlead.queue.store import Filter
from fairlead.queue.task import Event, Outcome, Task
from fairlead.queue.why import Why

#: So many events are looked through for a refusal.
_LATELY = 1000
_TITLE = 60
#: More events than this no task has.
_MANY = 1_000_000


class Looking(DeskPart):
    """status, capacity, list_tasks, find, show, why, end, events, last_event, event_before, locks, past_locks."""

    def __init__(self, office: Office, caller: Caller) -> None:
        super().__init__(office, caller)
        #: Whose a task is, its project and title: looked up once.
        self._known = lru_cache(maxsize=1000)(self._look_up)

    def status(self) -> Data:
        """Slots, what waits, who runs, who holds locks, which services run."""
        bells = self.office.paths.bells
        return overview.status(self.office.store.db) | {name: is_heard(bells, name) for name in SERVICES}

    def capacity(self) -> Data:
        """Slots and who uses them."""
        return overview.capacity(self.office.store.db)

    def list_tasks(
        self, statuses: Collection[str] = (), user: str | None = None, project: str | None = None, limit: int = 100
    ) -> list[Data]:
        """Tasks, newest first; of those that are others' what everybody may know."""
        which = Filter(statuses=frozenset(map(Status, statuses)), user=user, project=project, limit=limit)
        return [self._view(task) for task in self.office.store.list_tasks(which)]

    def find(self, part: str) -> Data:
        """The task that a part of an id means, without attempts and events."""
        return self._view(self.task(part))

    def _view(self, task: Task) -> Data:
        record = summary(task)
        return record if self.sees(task.spec.user, task.spec.project) else public(record)

    # ------------------------------------------------------------------ one task

    def show(self, part: str) -> Data:
        """Everything about a task that the caller may know."""
        task = self.task(part)
        if not self.sees(task.spec.user, task.spec.project):
            return self._view(task)
        paths = self.office.paths
        run_dir = find_dir(paths.conductor, task.spec.project, task.id, task.attempt)
        supervisor = living_supervisor(paths, task) if task.status in ACTIVE else None
        usage = usage_of(supervisor) if supervisor else None
        return self._record(task) | {"directory": self._directory(task), "run_dir": run_dir, "usage": usage}

    def _record(self, task: Task) -> Data:
        """What the store knows, or the archive if it has forgotten."""
        store = self.office.store
        try:
            store.get(task.id)
        except NoSuchTaskError:
            return self.archive.read(task.id) or {}
        return record_of(task, store.attempts(task.id), store.events(task_id=task.id))

    def _directory(self, task: Task) -> str | None:
        """Where tasks of its project run; unknown while the settings are wrong."""
        try:
            return directory_of(task.spec.project, self.office.config, self.office.paths, task.spec.user)
        except ConfigError:
            return None

    def why(self, part: str) -> Data:
        """Why a task is not running: every reason, the most decisive first."""
        task = self.allow(Deed.READ, self.task(part))
        office = self.office
        answer: Data = msgspec.to_builtins(Why(office.paths, office.store, office.clock).answer(task))
        return answer

    # ------------------------------------------------------------------ how it ends

    def end(self, part: str) -> Data:
        """How a task has ended, or that it has not; its file may still wait in the spool."""
        try:
            task = self.task(part)
        except NoSuchTaskError:
            if any(file.id == part for file in claimed_in(self.office.paths)):
                return {"id": part, "status": "spooled", "is_over": False}
            if refusal := self._refusal(part):
                raise RefusedError(f"{part} was refused: {refusal}") from None
            task = self.task(part)  # it may have been taken in between the two
        answer = {"id": task.id, "status": task.status.value, "is_over": self.is_over(task)}
        return answer | (_outcome(task) if self.sees(task.spec.user, task.spec.project) else {})

    def is_over(self, task: Task) -> bool:
        """Whether a task has ended for good: a lost one that may be run twice is, once it is archived as lost."""
        if task.status is not Status.LOST or not task.spec.idempotent:
            return task.status in FINAL
        record = self.archive.read(task.id)
        return record is not None and record["version"] >= task.version

    def _refusal(self, task_id: str) -> str:
        """What was wrong with a file that was to become this task, if that was told lately."""
        store = self.office.store
        events = store.events(after=max(0, store.last_event() - _LATELY), limit=_LATELY)
        ours = [one for one in events if one.event == "rejected" and one.detail.get("id") == task_id]
        return str(ours[-1].detail["error"]) if ours and self._sees_event(ours[-1]) else ""

    # ------------------------------------------------------------------ what happened

    def last_event(self) -> int:
        """The number of the newest event; 0 if there is none."""
        return self.office.store.last_event()

    def events(self, after: int = 0, limit: int | None = None, task: str | None = None) -> list[Data]:
        """What happened after an event, in order: to a task, or to everybody."""
        task_id = self.task(task).id if task else None
        found = self.office.store.events(task_id=task_id, after=after, limit=limit)
        return [event_view(event, self._title(event), whole=self._sees_event(event)) for event in found]

    def event_before(self, last: int, task: str | None = None) -> int:
        """The number of the event before the last so many ones."""
        if task is None:
            return max(0, self.last_event() - last)
        numbers = [event.seq for event in self.office.store.events(task_id=self.task(task).id, limit=_MANY)]
        return 0 if last >= len(numbers) else numbers[-last - 1] if numbers else 0

    def _title(self, event: Event) -> str:
        return self._known(event.task_id)[2] if event.task_id else ""

    def _sees_event(self, event: Event) -> bool:
        """Whether an event's details are for this caller."""
        if self.caller.is_admin or event.user == self.caller.name:
            return True
        if event.task_id is None:
            return False
        user, project, _ = self._known(event.task_id)
        return self.sees(user, project)

    def _look_up(self, task_id: str) -> tuple[str, str, str]:
        try:
            spec = self.office.store.get(task_id).spec
        except NoSuchTaskError:
            return "", "", ""
        return spec.user, spec.project, one_line(spec.title, _TITLE)

    # ------------------------------------------------------------------ locks

    def locks(self) -> Data:
        """Every lock that is held, and the lock files that somebody else made."""
        manager = self.office.locks
        foreign = [found for user in sorted(manager.foreign()) if (found := manager.files.read(user))]
        held = [lock_view(lock, whole=self._sees_lock(lock.name)) for lock in self.office.store.locks()]
        return {"locks": held, "foreign": [foreign_view(one) for one in foreign]}

    def past_locks(self, limit: int = 50) -> list[Data]:
        """The last released locks, newest first."""
        return [past_lock_view(one, whole=self._sees_lock(one.name)) for one in self.office.store.past_locks(limit)]

    def _sees_lock(self, name: str) -> bool:
        return self.caller.is_admin or name == f"user:{self.caller.name}"


def _outcome(task: Task) -> Data:
    """How it ended; a task that was cancelled while it waited has no more to tell than that."""
    outcome = task.outcome or Outcome(status=task.status, reason=task.status)
    plain: Data = msgspec.to_builtins(
        {name: getattr(outcome, name) for name in ("reason", "exit_code", "error", "result")}
    )
    return plain | {"has_started": task.started_at is not None}
