"""What the rest of Fairlead asks of a store, and the records that cross that border.

`fairlead.queue.sqlite` is the embedded default. tests/queue/conformance.py holds every store to this page.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from fairlead.base.identity import ProcessId, boot_id, is_alive
from fairlead.queue.decide import Candidate, Pick, Snapshot
from fairlead.queue.states import Status
from fairlead.queue.task import Attempt, Changes, Event, Outcome, Spec, Task


class Submission(Struct, frozen=True, kw_only=True):
    """A task on its way into the store."""

    id: str
    spec: Spec
    created_at: int
    #: An operator's critical task.
    express: bool = False


class Admitted(Struct, frozen=True, kw_only=True):
    """What became of a submission: taken in, known already, or refused with a sentence."""

    id: str
    new: bool = True
    refusal: str = ""
    warning: str = ""


class Holder(Struct, frozen=True, kw_only=True):
    """The process that holds a lock, so that its life or death can be proven."""

    host: str
    boot_id: str
    pid: int
    start: int

    @property
    def process(self) -> ProcessId:
        """Who it is, as long as the machine is up."""
        return ProcessId(self.pid, self.start)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for certain: it was of another boot, or is not there any more.

        The host's name says nothing: the store is on a local disk, and a machine may be renamed while its agents run.
        """
        return self.boot_id != boot_id() or not is_alive(self.process)


class Terms(Struct, frozen=True, kw_only=True):
    """The rules of a claim."""

    now: int
    slots: int
    serialized: bool
    lease: float
    holder: Holder


class Claim(Struct, frozen=True, kw_only=True):
    """A task that was claimed, with the lock that was taken for it."""

    task: Task
    lock: "Lock"

    @property
    def lock_id(self) -> str:
        """The lock's own id."""
        return self.lock.lock_id

    @property
    def token(self) -> int:
        """The fencing token of this attempt."""
        return self.lock.token


class Lock(Struct, frozen=True, kw_only=True):
    """One lock row. Names are `user:NAME`, or `task:ID` where serialization is off."""

    name: str
    lock_id: str
    token: int
    task_id: str
    #: run: an attempt holds it; hold: a person's command does.
    kind: str
    #: held, or quarantined: kept because nobody could prove that its holder is gone.
    state: str
    acquired_at: int
    expires_at: int
    holder: Holder
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def user(self) -> str | None:
        """The user whose tasks this lock keeps apart, if it is a user lock."""
        return self.name.removeprefix("user:") if self.name.startswith("user:") else None


class PastLock(Struct, frozen=True, kw_only=True):
    """A lock that was released, and on what evidence."""

    name: str
    lock_id: str
    token: int
    task_id: str
    kind: str
    acquired_at: int
    released_at: int
    why: str
    evidence: dict[str, Any] = field(default_factory=dict)


class Ended(Struct, frozen=True, kw_only=True):
    """An attempt that has ended, all of it, with what is to be recorded."""

    task_id: str
    token: int
    outcome: Outcome
    #: Which attempt, and where: for the log.
    attempt: int = 0
    project: str = ""
    started_at: int | None = None
    #: Keep the lock and raise an alarm: nobody could prove that everything is gone.
    quarantine: bool = False


def ended(task: Task, outcome: Outcome, *, started_at: int | None = None, quarantine: bool = False) -> Ended:
    """The end of a task's current attempt."""
    return Ended(
        task_id=task.id,
        token=task.token,
        outcome=outcome,
        attempt=task.attempt,
        project=task.spec.project,
        started_at=started_at,
        quarantine=quarantine,
    )


class Restored(Struct, frozen=True, kw_only=True):
    """A task as the files tell it, with the lock that its run holds."""

    task: Task
    attempts: Sequence[Attempt] = ()
    lock: Lock | None = None
    express: bool = False


class Filter(Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    statuses: frozenset[Status] = frozenset()
    user: str | None = None
    project: str | None = None
    limit: int = 100


class Pause(Struct, frozen=True, kw_only=True):
    """What is paused: `all`, `user:NAME` or `project:NAME`."""

    scope: str
    at: int
    by: str
    reason: str = ""


class Share(Struct, frozen=True, kw_only=True):
    """How shares are charged: what the accounts need of the settings."""

    half_life: float = 0.0
    weights: dict[str, float] = field(default_factory=dict)
    project_weights: dict[str, float] = field(default_factory=dict)
    #: Charge the cost that a run reports, not the time it held its lock; one that reports none is charged its time.
    charge_cost: bool = False

    def weight(self, user: str) -> float:
        """A user's weight."""
        return self.weights.get(user, 1.0)

    def project_weight(self, project: str) -> float:
        """A project's weight among the projects of one user."""
        return self.project_weights.get(project, 1.0)


class Store(Protocol):
    """The truth about tasks and locks. Every method is one transaction: all of it, or nothing."""

    def close(self) -> None:
        """Let go of the store."""

    # Entering and leaving the queue
    def add(
        self, submissions: Sequence[Submission], *, now: int, warn_at: int, refuse_at: int, together: bool = False
    ) -> list[Admitted]:
        """Take tasks in; a known id is a no-op. Together: all of them, or none if there is no room for one."""

    def promote_due(self, now: int) -> int:
        """Let tasks whose `run_at` has come take part; returns how many."""

    def next_due(self) -> int | None:
        """When the next waiting `run_at` comes."""

    def cancel(self, task_id: str, *, by: str, now: int) -> Task:
        """Cancel a queued task, or note the request on an active one; returns the task as it is then."""

    def retry(self, task_id: str, *, by: str, now: int) -> Task:
        """Send a failed, cancelled or lost task through the queue again."""

    def update(self, task_id: str, version: int, changes: Changes, *, now: int) -> Task:
        """Change a queued task, if nobody else did meanwhile."""

    # Choosing and running
    def snapshot(
        self, *, now: int, free_slots: int, ageing: float, serialized: bool, exclude: Iterable[str]
    ) -> Snapshot:
        """What a decision needs: the users who stand first, but for the excluded ones."""

    def candidate(self, user: str) -> Candidate:
        """One user with all lanes that have due tasks, for explaining."""

    def claim(self, picks: Sequence[Pick], terms: Terms) -> list[Claim]:
        """Claim tasks and take their locks; picks that somebody else was faster with are left out."""

    def unclaim(self, task_id: str, token: int, *, reason: str, now: int, evidence: dict[str, Any]) -> None:
        """Take back a claim whose agent provably never started; somebody's wish to cancel it is fulfilled then."""

    def started(self, task_id: str, token: int, *, started_at: int, holder: Holder) -> None:
        """Record that the agent runs, and who supervises it."""

    def finish(self, ends: Sequence[Ended], *, now: int) -> list[bool]:
        """Record ends, free the locks, charge the time; False where the token is out of date or the task unknown."""

    def count_active(self) -> int:
        """How many tasks are claimed or running: the slots in use."""

    def active(self) -> list[Task]:
        """Claimed and running tasks."""

    # Locks
    def acquire(self, name: str, *, task_id: str, holder: Holder, now: int, lease: float) -> Lock | None:
        """Take a lock for a person's command; None while somebody holds it, or a task of that user runs."""

    def release(self, lock_id: str, *, why: str, now: int, evidence: dict[str, Any]) -> bool:
        """Free a lock; False if that lock is not held any more."""

    def renew(self, lock_ids: Sequence[str], *, now: int, lease: float) -> None:
        """Extend leases that heartbeats have renewed; for a lock that is not held any more it is refused and logged."""

    def locks(self) -> list[Lock]:
        """Every lock that is held."""

    def lock(self, name: str) -> Lock | None:
        """The lock of that name, if it is held."""

    def past_lock(self, lock_id: str) -> PastLock | None:
        """A released lock, if it is remembered."""

    def past_locks(self, limit: int) -> list[PastLock]:
        """The last released locks, newest first."""

    # Pausing
    def pause(self, scope: str, *, by: str, reason: str, now: int) -> None:
        """Start nothing more in that scope."""

    def resume(self, scope: str, *, by: str, now: int) -> bool:
        """Go on; False if it was not paused."""

    def pauses(self) -> list[Pause]:
        """What is paused."""

    def come_back(self, user: str, now: int) -> None:
        """Let a user take part again whom something outside the store had kept out: he has saved nothing up."""

    # Reading
    def get(self, task_id: str) -> Task:
        """One task."""

    def find(self, part: str) -> list[str]:
        """The ids that begin with this, or whose tail does."""

    def list_tasks(self, which: Filter) -> list[Task]:
        """Tasks, newest first."""

    def attempts(self, task_id: str) -> list[Attempt]:
        """All attempts of a task."""

    def events(self, *, task_id: str | None = None, after: int = 0, limit: int | None = None) -> list[Event]:
        """What happened, in order; where no limit is given, all there is of one task, or the next thousand of all."""

    def last_event(self) -> int:
        """The number of the newest event; 0 if there is none."""

    def note(self, *events: Event) -> None:
        """Write events down, with one commit."""

    # Keeping
    def unarchived(self, limit: int) -> list[Task]:
        """Finished tasks whose archive file is still to be written."""

    def mark_archived(self, versions: dict[str, int]) -> None:
        """Their archive files are durable; a task that was retried meanwhile is left alone."""

    def forget(self, before: int, limit: int) -> list[str]:
        """Drop archived tasks that finished before then; returns their ids."""

    def set_shares(self, share: Share, *, now: int) -> None:
        """Use these weights and this half-life from now on."""

    def set_facts(self, facts: dict[str, str]) -> None:
        """Remember facts about the instance, for those who read the store without its settings."""

    def facts(self) -> dict[str, str]:
        """The facts about the instance."""

    def reserve_tokens(self, count: int) -> None:
        """Leave out so many tokens: nobody can tell any more whether they were given out."""

    def restore(self, items: Sequence[Restored], *, now: int) -> list[bool]:
        """Put a task back as the files tell it, with the lock it held; False if it is known already."""
