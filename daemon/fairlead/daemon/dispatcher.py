"""The dispatcher: takes files in, decides who is next, claims, locks and starts.

`run_once` is one pass over the named steps; `fairlead.daemon.process` repeats it whenever something rings.
"""

import json
from collections.abc import Callable

from fairlead.base.bell import ring_all
from fairlead.base.files import write_atomically
from fairlead.base.identity import ProcessId, boot_id, host, is_alive
from fairlead.conductor import rundir
from fairlead.conductor.launch import CannotLaunchError, prepare_launch
from fairlead.conductor.launcher import Launcher, SpawnerGoneError
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import Meta
from fairlead.config.schema import Config
from fairlead.daemon.spool import Spool
from fairlead.queue.admit import Admission
from fairlead.queue.claims import give_back, record_ends
from fairlead.queue.decide import decide
from fairlead.queue.instance import Instance
from fairlead.queue.locks import this_holder
from fairlead.queue.sqlite.overview import capacity
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Ended, Lock, Terms
from fairlead.queue.task import Outcome, Task


class Dispatcher:
    """One pass at a time; holds nothing that a crash could lose."""

    def __init__(self, instance: Instance, launcher: Launcher, spool: Spool) -> None:
        self.instance = instance
        self.paths = instance.paths
        self.store = instance.store
        self.clock = instance.clock
        self.log = instance.log
        self.launcher = launcher
        self.spool = spool
        self.admission = Admission(self.paths, instance.config, self.store, self.clock, self.log)
        #: Complete files of the last look at the spool that no batch has taken yet.
        self.waiting_names: list[str] = []
        #: Some files were not complete yet.
        self.settling = False
        #: While draining, nothing new starts.
        self.draining = False
        self._shown: bytes = b""
        self._host, self._boot = host(), boot_id()

    def run_once(self) -> None:
        """All steps, in order. Each may fail and be repeated: none depends on what an earlier pass remembered."""
        for step in self.steps():
            step()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does."""
        return (
            self.take_in_files,
            self.promote_due_tasks,
            self.start_tasks,
            self.show_capacity,
        )

    # ------------------------------------------------------------------ before the first pass

    def reconcile(self) -> None:
        """Put right what a predecessor left half done: its files, its claims, its visible locks."""
        while waiting := self.admission.claimed()[: self.config.spool.batch]:
            self.admission.admit(waiting)
        active = {task.id: task for task in self.store.active()}
        for lock in self.store.locks():
            if lock.task_id in active and self._is_abandoned(lock, active[lock.task_id]):
                self._take_back(active[lock.task_id], lock, "its dispatcher died before it started")
            else:
                self.instance.locks.show(lock)

    def _is_abandoned(self, lock: Lock, task: Task) -> bool:
        """Whether a claim's dispatcher is gone and nobody has spoken for the run yet."""
        holder = lock.holder
        gone = holder.boot_id != self._boot or not is_alive(ProcessId(holder.pid, holder.start))
        return task.status is Status.CLAIMED and holder.host == self._host and gone

    # ------------------------------------------------------------------ step: take in files

    def take_in_files(self) -> None:
        """Dropped files become tasks, one batch per pass, so that starting is never far behind a flood."""
        if not self.waiting_names:
            self.waiting_names, self.settling = self.spool.complete()
        batch = self.config.spool.batch
        names, self.waiting_names = self.waiting_names[:batch], self.waiting_names[batch:]
        claimed = [claim for name in names if (claim := self.admission.claim(name))]
        waiting = claimed or self.admission.claimed()[:batch]
        if waiting and self.admission.admit(waiting).admitted:
            ring_all(self.paths.bells, "queued", but="daemon")

    # ------------------------------------------------------------------ step: promote due tasks

    def promote_due_tasks(self) -> None:
        """Tasks whose time has come take part from now on."""
        while self.store.promote_due(self.clock.wall_ms()):
            pass

    # ------------------------------------------------------------------ step: start tasks

    def start_tasks(self) -> None:
        """Fill the free slots by fair share; users with a lock are passed over, and so is who cannot start."""
        if self.draining:
            return
        out = self.instance.locks.foreign()
        while claims := self._claim(out):
            for claim in claims:
                if not self._start(claim):
                    out.add(claim.task.spec.user)

    def _claim(self, out: set[str]) -> list[Claim]:
        """Decide and claim, in one transaction with the lock."""
        config = self.config
        free = config.slots.max - self.store.count_active()
        if free <= 0:
            return []
        serialized = config.per_user_serialization.enabled
        now = self.clock.wall_ms()
        snapshot = self.store.snapshot(
            now=now, free_slots=free, ageing=config.fair_share.ageing, serialized=serialized, exclude=out
        )
        decision = decide(snapshot)
        if not decision.picks:
            return []
        terms = Terms(
            now=now, slots=config.slots.max, serialized=serialized, lease=self.instance.lease, holder=this_holder()
        )
        return self.store.claim(decision.picks, terms)

    def _start(self, claim: Claim) -> bool:
        """Show the lock, make the run directory, have a supervisor started; False if the user must be left alone."""
        task = claim.task
        if not self.instance.locks.show(claim.lock):
            self._yield_to_foreigner(claim)
            return False
        run_dir = self._run_dir(task)
        try:
            launch = prepare_launch(claim, run_dir, self.config, self.paths, self.instance.environ)
            rundir.create(run_dir, self._meta(claim), launch, task.spec.prompt)
            self.launcher.launch(run_dir)
        except CannotLaunchError as error:
            self._fail(claim, str(error))
        except (SpawnerGoneError, OSError) as error:
            self._take_back(task, claim.lock, f"its start failed: {error}")
            return False
        else:
            self.log.info("claimed", task=task.id, user=task.spec.user, attempt=task.attempt, token=claim.token)
        return True

    def _yield_to_foreigner(self, claim: Claim) -> None:
        """Somebody made a lock file between our look and our claim: that is no failed start of the task's."""
        why = "a foreign lock file is there"
        now = self.clock.wall_ms()
        self.store.unclaim(claim.task.id, claim.token, reason=why, now=now, evidence={"proof": "never launched"})
        self.log.info("requeued", task=claim.task.id, user=claim.task.spec.user, why=why)

    def _run_dir(self, task: Task) -> str:
        return rundir.active_dir(self.paths.conductor, task.spec.project, task.id, task.attempt)

    def _meta(self, claim: Claim) -> Meta:
        spec = claim.task.spec
        return Meta(
            id=claim.task.id,
            status=Status.CLAIMED,
            user=spec.user,
            project=spec.project,
            agent=spec.agent,
            attempt=claim.task.attempt,
            lock_id=claim.lock_id,
            token=claim.token,
            host=self._host,
            boot_id=self._boot,
            claimed_boot=self.clock.boot(),
            claimed_at=self.clock.wall_ms(),
        )

    def _take_back(self, task: Task, lock: Lock, why: str) -> None:
        """A start went wrong on the way: queue the task again, unless it did start after all."""
        run_dir = self._run_dir(task)
        if void(run_dir) is Void.NEVER_STARTED:
            give_back(self.instance, task, lock, why=why, evidence={"proof": "voided before its supervisor came"})
            rundir.discard(run_dir)

    def _fail(self, claim: Claim, error: str) -> None:
        """It cannot be started as things are configured: trying again would only repeat that."""
        outcome = Outcome(
            status=Status.FAILED,
            reason="cannot_launch",
            error=error,
            finished_at=self.clock.wall_ms(),
            evidence={"proof": "never launched"},
        )
        record_ends(self.instance, [(claim.lock, Ended(task_id=claim.task.id, token=claim.token, outcome=outcome))])
        ring_all(self.paths.bells, "ended", but="daemon")

    # ------------------------------------------------------------------ step: show capacity

    def show_capacity(self) -> None:
        """capacity.json says how many slots are taken, and by whom; written when that has changed."""
        data = json.dumps(capacity(self.store.db, self.config.slots.max), indent=2).encode() + b"\n"
        if data != self._shown:
            write_atomically(self.paths.capacity, data)
            self._shown = data

    # ------------------------------------------------------------------ settings and end

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.instance.config

    def use_settings(self) -> None:
        """The settings were read again: hand them on."""
        self.admission.config = self.config
        self.spool.settle = self.config.intervals.settle
        self.instance.apply_shares()

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.spool.close()
        self.launcher.close()
