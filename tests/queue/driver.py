"""A store with a clock turned by hand, and short words for what daemon and watchdog do with it."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from fairlead.base.ids import new_id
from fairlead.queue.decide import Pick, Snapshot, decide
from fairlead.queue.states import Status
from fairlead.queue.store import Admitted, Claim, Ended, Holder, Share, Store, Submission, Terms
from fairlead.queue.task import Event, Outcome, Spec

#: 2027-01-15 in wall milliseconds.
NOW = 1_800_000_000_000
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
HOLDER = Holder(host="here", boot_id="this-boot", pid=4711, start=1)
MANY = 1_000_000


class MakeStore(Protocol):
    """Opens the store under test, always the same one: each call is another process's view of it."""

    def __call__(self, share: Share | None = None) -> Store:
        """Open it."""


def a_spec(user: str = "alice", project: str = "site", **given: Any) -> Spec:  # noqa: ANN401 - any field of a Spec
    return Spec(user=user, project=project, agent="shell", action="shell", **given)


class Driver:
    """Drives one store. Nothing in it is remembered by the store."""

    def __init__(self, store: Store, now: int = NOW) -> None:
        self.store = store
        self.now = now
        self.slots = 4
        self.serialized = True

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    # ------------------------------------------------------------------ entering

    def submit(self, *specs: Spec, express: bool = False, refuse_at: int = MANY, warn_at: int = MANY) -> list[Admitted]:
        items = [Submission(id=new_id(self.now), spec=spec, created_at=self.now, express=express) for spec in specs]
        return self.store.add(items, now=self.now, warn_at=warn_at, refuse_at=refuse_at)

    def add(self, user: str = "alice", project: str = "site", *, express: bool = False, **given: Any) -> str:  # noqa: ANN401
        [admitted] = self.submit(a_spec(user, project, **given), express=express)
        return admitted.id

    def add_many(self, count: int, user: str = "alice", project: str = "site") -> list[str]:
        return [one.id for one in self.submit(*[a_spec(user, project) for _ in range(count)])]

    # ------------------------------------------------------------------ running

    def look(self, exclude: Iterable[str] = (), *, free: int | None = None) -> Snapshot:
        slots = self.slots - self.store.count_active() if free is None else free
        return self.store.snapshot(
            now=self.now, free_slots=slots, ageing=3600.0, serialized=self.serialized, exclude=exclude
        )

    def terms(self) -> Terms:
        return Terms(now=self.now, slots=self.slots, serialized=self.serialized, lease=3600.0, holder=HOLDER)

    def claim(self, exclude: Iterable[str] = ()) -> list[Claim]:
        """What one pass of the dispatcher claims."""
        return self.store.claim(decide(self.look(exclude)).picks, self.terms())

    def claim_task(self, task_id: str) -> list[Claim]:
        spec = self.store.get(task_id).spec
        return self.store.claim([Pick(task_id=task_id, user=spec.user, project=spec.project)], self.terms())

    def claim_one(self, user: str = "alice", project: str = "site", **given: Any) -> Claim:  # noqa: ANN401
        [claim] = self.claim_task(self.add(user, project, **given))
        return claim

    def run_one(self, user: str = "alice", project: str = "site", **given: Any) -> Claim:  # noqa: ANN401
        claim = self.claim_one(user, project, **given)
        self.start(claim)
        return claim

    def start(self, claim: Claim) -> None:
        self.store.started(claim.task.id, claim.token, started_at=self.now, holder=HOLDER)

    def finish(self, claim: Claim, status: Status = Status.COMPLETED, **given: Any) -> bool:  # noqa: ANN401
        [taken] = self.store.finish([self.end_of(claim, status, **given)], now=self.now)
        return taken

    def end_of(
        self,
        claim: Claim,
        status: Status = Status.COMPLETED,
        *,
        quarantine: bool = False,
        held: float = 1.0,
        **given: Any,  # noqa: ANN401 - any field of an Outcome
    ) -> Ended:
        outcome = Outcome(status=status, reason="exit", finished_at=self.now, held=held, **given)
        started = self.now if status is Status.COMPLETED else None
        return Ended(
            task_id=claim.task.id, token=claim.token, outcome=outcome, started_at=started, quarantine=quarantine
        )

    def unclaim(self, claim: Claim, reason: str = "it did not start") -> None:
        self.store.unclaim(
            claim.task.id, claim.token, reason=reason, now=self.now, evidence={"proof": "never launched"}
        )

    def serve(self, user: str, held: float, project: str = "site") -> None:
        """Let a user have the machine for so many seconds."""
        claim = self.run_one(user, project)
        self.pass_time(held)
        assert self.finish(claim, held=held)

    def drain(self) -> list[str]:
        """Run everything there is with one slot; the ids in the order in which they were started."""
        order = []
        self.slots = 1
        while claims := self.claim():
            order += [claim.task.id for claim in claims]
            self.pass_time(1)
            for claim in claims:
                assert self.finish(claim)
        return order

    # ------------------------------------------------------------------ locks and looking

    def hold(self, user: str = "alice", task_id: str = "by-hand") -> str | None:
        lock = self.store.acquire(f"user:{user}", task_id=task_id, holder=HOLDER, now=self.now, lease=60.0)
        return lock.lock_id if lock else None

    def release(self, lock_id: str) -> bool:
        return self.store.release(lock_id, why="test", now=self.now, evidence={"proof": "a test said so"})

    def status(self, task_id: str) -> Status:
        return self.store.get(task_id).status

    def events(self, task_id: str | None = None) -> list[str]:
        return [event.event for event in self.store.events(task_id=task_id)]

    def refusals(self, task_id: str | None = None) -> list[dict[str, Any]]:
        return [event.detail for event in self.store.events(task_id=task_id) if event.event == "refused"]


def users_of(snapshot: Snapshot) -> list[str]:
    return [candidate.user for candidate in snapshot.candidates]


def picked_users(snapshot: Snapshot) -> list[str]:
    return [pick.user for pick in decide(snapshot).picks]


def picked(snapshot: Snapshot) -> Sequence[str]:
    return [pick.task_id for pick in decide(snapshot).picks]


def told(events: Iterable[Event]) -> list[tuple[str, Status | None]]:
    return [(event.event, event.status) for event in events]
