"""Random histories: whatever is done to a store, by two processes and with a clock that jumps, its invariants hold."""

import os
import shutil
import tempfile
from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from tests.queue.driver import DAY, Driver
from tests.queue.invariants import ALL, check_counters, check_store

from fairlead.base.errors import NotFoundError, RefusedError
from fairlead.queue.decide import Pick, decide
from fairlead.queue.sqlite.store import open_store
from fairlead.queue.states import FINAL, LEGAL, Status
from fairlead.queue.store import Claim, Filter, Share
from fairlead.queue.task import Changes

USERS = st.sampled_from(["alice", "bob", "carol"])
PROJECTS = st.sampled_from(["site", "shop"])
SCOPES = st.sampled_from(["all", "user:alice", "user:bob", "project:site", "project:shop"])
RANKS = st.integers(0, 3)
ENDS = st.sampled_from(sorted(FINAL))
DELAYS = st.sampled_from([None, None, -3600.0, 5.0, 7200.0])
JUMPS = st.sampled_from([0.5, 30.0, 3600.0, -3600.0, -DAY / 1000.0, 2 * DAY / 1000.0])
#: Commits need not survive a power cut here.
PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a directory of our own is made in it


class StoreMachine(RuleBasedStateMachine):
    """Two processes at one store, doing whatever comes."""

    tasks = Bundle("tasks")
    claims = Bundle("claims")
    holds = Bundle("holds")
    picks = Bundle("picks")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=PLACE)
        self.path = os.path.join(self.folder, "queue.db")
        self.stores = [open_store(self.path), open_store(self.path)]
        self.drive = Driver(self.stores[0])
        self.last_token = 0
        self.seen: dict[str, Status] = {}

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------ what may happen

    @rule(target=tasks, user=USERS, project=PROJECTS, rank=RANKS, delay=DELAYS, express=st.booleans())
    def submit(self, user: str, project: str, rank: int, delay: float | None, express: bool) -> str:  # noqa: FBT001
        run_at = None if delay is None else self.drive.now + int(delay * 1000)
        task_id = self.drive.add(user, project, express=express and rank == 0, priority=rank, run_at=run_at)
        self.seen[task_id] = Status.QUEUED
        return task_id

    @rule(target=claims, slots=st.integers(0, 4))
    def dispatch(self, slots: int) -> object:
        self.drive.slots = slots
        return multiple(*self._claimed(list(decide(self.drive.look()).picks)))

    @rule(target=picks, slots=st.integers(1, 4))
    def decide_only(self, slots: int) -> list[Pick]:
        return list(decide(self.drive.look(free=slots)).picks)

    @rule(target=claims, old=picks)
    def claim_what_was_picked_earlier(self, old: list[Pick]) -> object:
        self.drive.slots = 4
        return multiple(*self._claimed(old))

    def _claimed(self, wanted: list[Pick]) -> list[Claim]:
        made = self.drive.store.claim(wanted, self.drive.terms())
        for claim in made:
            self._note_token(claim.token)
        active = Counter(task.spec.user for task in self.drive.store.active())
        if self.drive.serialized:
            assert all(active[claim.task.spec.user] == 1 for claim in made), "claimed beside a running task"
        assert sum(active.values()) <= self.drive.slots or not made
        return made

    def _note_token(self, token: int) -> None:
        assert token > self.last_token, "a token went back"
        self.last_token = token

    @rule(claim=claims)
    def start(self, claim: Claim) -> None:
        with suppress(RefusedError, NotFoundError):
            self.drive.start(claim)

    @rule(claim=claims, status=ENDS, quarantine=st.booleans(), held=st.sampled_from([0.0, 1.0, 5000.0]))
    def finish(self, claim: Claim, status: Status, quarantine: bool, held: float) -> None:  # noqa: FBT001
        is_current = self._is_active(claim)
        assert self.drive.finish(claim, status, quarantine=quarantine, held=held) == is_current

    def _is_active(self, claim: Claim) -> bool:
        return any(task.token == claim.token for task in self.drive.store.active())

    @rule(claim=claims)
    def take_back(self, claim: Claim) -> None:
        with suppress(RefusedError, NotFoundError):
            self.drive.unclaim(claim)

    @rule(task_id=tasks)
    def cancel(self, task_id: str) -> None:
        with suppress(RefusedError, NotFoundError):
            self.drive.store.cancel(task_id, by="somebody", now=self.drive.now)

    @rule(task_id=tasks)
    def retry(self, task_id: str) -> None:
        with suppress(RefusedError, NotFoundError):
            self.drive.store.retry(task_id, by="somebody", now=self.drive.now)

    @rule(task_id=tasks, rank=RANKS, delay=DELAYS)
    def change(self, task_id: str, rank: int, delay: float | None) -> None:
        run_at = None if delay is None else self.drive.now + int(delay * 1000)
        with suppress(RefusedError, NotFoundError):
            version = self.drive.store.get(task_id).version
            self.drive.store.update(task_id, version, Changes(priority=rank, run_at=run_at), now=self.drive.now)

    @rule(target=holds, user=USERS)
    def hold(self, user: str) -> object:
        is_active = any(task.spec.user == user for task in self.drive.store.active())
        lock_id = self.drive.hold(user)
        if lock_id is None:
            return multiple()
        assert not is_active, "held beside a running task"
        self._note_token(int(lock_id.rpartition("_")[2]))
        return lock_id

    @rule(lock_id=holds)
    def release(self, lock_id: str) -> None:
        is_held = any(lock.lock_id == lock_id for lock in self.drive.store.locks())
        assert self.drive.release(lock_id) == is_held

    @rule()
    def free_quarantined(self) -> None:
        for lock in self.drive.store.locks():
            if lock.state == "quarantined":
                assert self.drive.release(lock.lock_id)

    @rule()
    def renew(self) -> None:
        self.drive.store.renew([lock.lock_id for lock in self.drive.store.locks()], now=self.drive.now, lease=5.0)

    @rule(scope=SCOPES)
    def pause(self, scope: str) -> None:
        self.drive.store.pause(scope, by="op", reason="", now=self.drive.now)

    @rule(scope=SCOPES)
    def resume(self, scope: str) -> None:
        self.drive.store.resume(scope, by="op", now=self.drive.now)

    @rule(seconds=JUMPS)
    def let_time_pass(self, seconds: float) -> None:
        self.drive.pass_time(seconds)

    @rule()
    def promote(self) -> None:
        self.drive.store.promote_due(self.drive.now)

    @rule()
    def archive_and_forget(self) -> None:
        finished = self.drive.store.unarchived(ALL)
        self.drive.store.mark_archived({task.id: task.version for task in finished})
        for task_id in self.drive.store.forget(self.drive.now - 10_000, ALL):
            assert self.seen.pop(task_id) in FINAL, "forgot a task that had not ended"

    @rule(half_life=st.sampled_from([0.0, 60.0, 14400.0]), weight=st.sampled_from([0.25, 1.0, 10.0]))
    def set_shares(self, half_life: float, weight: float) -> None:
        share = Share(half_life=half_life, weights={"alice": weight}, project_weights={"shop": weight})
        self.drive.store.set_shares(share, now=self.drive.now)

    @rule()
    def switch_serialization(self) -> None:
        self.drive.serialized = not self.drive.serialized

    @rule(number=st.integers(0, 1))
    def let_the_other_process_go_on(self, number: int) -> None:
        self.drive.store = self.stores[number]

    @rule(number=st.integers(0, 1))
    def restart_a_process(self, number: int) -> None:
        self.stores[number].close()
        self.stores[number] = open_store(self.path)
        self.drive.store = self.stores[number]

    # ------------------------------------------------------------------ what must be true

    @invariant()
    def counts_and_locks_are_right(self) -> None:
        check_store(self.drive.store)
        check_counters(self.path)

    @invariant()
    def nothing_is_lost_and_every_way_is_legal(self) -> None:
        now = {task.id: task.status for task in self.drive.store.list_tasks(Filter(limit=ALL))}
        assert now.keys() == self.seen.keys(), "a task was lost, or came from nowhere"
        for task_id, status in now.items():
            before = self.seen[task_id]
            assert status is before or status in LEGAL[before], f"{task_id} went from {before} to {status}"
        self.seen = now

    @invariant()
    def standings_are_numbers(self) -> None:
        for user in ("alice", "bob", "carol"):
            standing = self.drive.store.candidate(user).standing
            assert -1e12 < standing < 1e12


StoreMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestStoreMachine = StoreMachine.TestCase
