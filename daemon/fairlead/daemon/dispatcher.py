"""The dispatcher: takes files in, decides who is next, claims, locks and starts.

`run_once` is one pass over the named steps; `fairlead.daemon.process` repeats it whenever something rings.

The order of writes on the way to a start: the claim with its lock is committed; the visible lock file appears; the run
directory is made; a supervisor is asked to come. Before the last of these nothing can have started, so whoever dies
on the way leaves a claim that can be proven void and given back. From then on the supervisor speaks for the run.
"""

import json
import math
import os
from collections.abc import Callable
from typing import Protocol

from fairlead.base.bell import ring_all
from fairlead.base.dropping import being_written
from fairlead.base.errors import is_machine_trouble
from fairlead.base.files import write_atomically
from fairlead.base.identity import boot_id, host
from fairlead.conductor import rundir
from fairlead.conductor.launch import CannotLaunchError, prepare_launch
from fairlead.conductor.launcher import Launcher, SpawnerGoneError
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import Meta
from fairlead.conductor.orders import Launch
from fairlead.conductor.starter import starter_of
from fairlead.config.schema import Config
from fairlead.daemon.deliveries import Deliveries
from fairlead.daemon.spool import Spool
from fairlead.queue.admit import Admission, Claimed
from fairlead.queue.claims import (
    FOREIGN_LOCK,
    MACHINE_TROUBLE,
    SPAWNER_DIED,
    give_back,
    record_ends,
    why_not_started,
)
from fairlead.queue.decide import decide
from fairlead.queue.instance import Instance, reserve_of
from fairlead.queue.locks import this_holder
from fairlead.queue.passes import guarded
from fairlead.queue.room import shortage
from fairlead.queue.sqlite.overview import capacity
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Lock, Terms, ended
from fairlead.queue.task import Outcome, Task, about

#: Rounds of claiming in one pass. Tasks that cannot be started free their slots at once, however many there are:
#: between two passes files are taken in and signals are heard.
ROUNDS = 20
#: Seconds between two writings of capacity.json: it is for people and monitors, and tasks may be shorter than that.
SHOW_EVERY = 0.1
_NEVER_LAUNCHED = {"proof": "never launched"}
#: Of a name in rejected/, so that the kernel's 255 bytes suffice for its `.error` too.
_NAME_ROOM = 249
_IMMOVABLE = """it cannot be moved out of the spool: the service has no right to.

It is still there, and is left alone: change its owner or its rights, or remove it.
"""


class MortalLauncher(Launcher, Protocol):
    """A launcher that works through a process of its own."""

    @property
    def died(self) -> bool:
        """Whether that process has ended."""

    @property
    def pid(self) -> int | None:
        """Which process it is, while one is known."""


class Dispatcher:
    """One pass at a time; holds nothing that a crash could lose."""

    def __init__(
        self, instance: Instance, launcher: MortalLauncher, spool: Spool, deliveries: Deliveries | None = None
    ) -> None:
        self.instance = instance
        self.paths = instance.paths
        self.store = instance.store
        self.clock = instance.clock
        self.log = instance.log
        self.launcher = launcher
        self.spool = spool
        #: In the system's instance: what clerks bring from the users' spools, instead of a spool of our own.
        self.deliveries = deliveries
        self.admission = Admission(self.paths, instance.config, self.store, self.clock, self.log)
        #: Something may have been dropped: look at the spool.
        self.look_around = True
        #: Complete files of the last look at the spool that no batch has taken yet.
        self.waiting_names: list[str] = []
        #: Some files were not complete yet.
        self.settling = False
        #: There was more to start than fits into one pass.
        self.has_more = False
        #: Why nothing new is begun, while there is too little room on the disk.
        self.shortage = ""
        #: When the next `run_at` comes, in wall milliseconds.
        self.next_due: int | None = None
        #: When capacity.json may be written again, by the clock that does not jump; none if it needs no other look.
        self.show_at: float | None = None
        #: The settings were read again, and have to be handed on.
        self.has_new_settings = False
        #: Claims of a pass that failed before it had started them all.
        self._unstarted: list[Claim] = []
        #: Nothing is started before then, by the clock that does not jump: it has just gone wrong for all.
        self._start_after = 0.0
        #: Users whose lock file was somebody else's at the last look.
        self._kept_out: set[str] = set()
        self._shown: bytes = b""
        self._shown_at = -math.inf
        self._host, self._boot = host(), boot_id()

    def run_once(self) -> None:
        """All steps, in order. Each may fail and be repeated: none depends on what an earlier pass remembered."""
        self.look_around, self._shown_at = True, -math.inf
        for step in self.steps():
            step()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does."""
        return (
            self.use_settings,
            self.look_for_room,
            self.take_in_files,
            self.promote_due_tasks,
            self.replace_spawner,
            self.start_tasks,
            self.show_capacity,
            self.look_ahead,
        )

    # ------------------------------------------------------------------ before the first pass

    def reconcile(self) -> None:
        """Put right what a predecessor left half done: its files, its claims, its visible locks."""
        # A file that cannot be taken in now is tried again with every pass: no reason not to start.
        guarded((self.take_in_left_files,), self.log)
        active = {task.id: task for task in self.store.active()}
        for lock in self.store.locks():
            if lock.task_id in active and self._is_abandoned(lock, active[lock.task_id]):
                self._take_back(active[lock.task_id], lock, why_not_started(lock.holder))
            else:
                self.instance.locks.show(lock)

    def take_in_left_files(self) -> None:
        """Files that a dead process had claimed become tasks before any that came later."""
        while waiting := self.admission.claimed()[: self.config.spool.batch]:
            self.admission.admit(waiting)

    def _is_abandoned(self, lock: Lock, task: Task) -> bool:
        """Whether a claim's dispatcher is gone and nobody has spoken for the run yet."""
        return task.status is Status.CLAIMED and lock.holder.has_ended

    # ------------------------------------------------------------------ step: look for room

    def look_for_room(self) -> None:
        """While there is less room on the disk than the reserve, nothing new is begun; it is told once."""
        before, self.shortage = self.shortage, shortage(self.paths.home, reserve_of(self.config))
        if self.shortage and not before:
            self.log.error("no_room", error=self.shortage)
        elif before and not self.shortage:
            self.log.info("room_again", path=self.paths.home)
            self.look_around = True

    # ------------------------------------------------------------------ step: take in files

    def take_in_files(self) -> None:
        """Dropped files become tasks, one batch per pass, so that starting is never far behind a flood."""
        if self.shortage:
            self._leave_files()
            return
        waiting = self._collect(self.deliveries) if self.deliveries else self._take_batch()
        if self.look_around:
            waiting = self._with_left_files(waiting)
        if waiting and self._admit(waiting):
            ring_all(self.paths.bells, "queued", but="daemon")
        self.look_around = False  # only now: after a step that failed, there is still something to look at

    def _leave_files(self) -> None:
        """What was dropped stays where it is: without room it could not be entered."""
        self.waiting_names, self.settling, self.look_around = [], False, False
        if self.deliveries is not None:
            self.deliveries.leave()

    def _admit(self, waiting: list[Claimed]) -> bool:
        """Enter these; True if there are new tasks."""
        if self.deliveries is None:
            return bool(self.admission.admit(waiting).admitted)
        try:
            result = self.admission.admit(waiting)
        except BaseException:
            self.deliveries.drop_pending()
            raise
        self.deliveries.settle(waiting, result)
        return bool(result.admitted)

    def _collect(self, deliveries: Deliveries) -> list[Claimed]:
        if self.look_around:
            deliveries.look_around()
        waiting = deliveries.collect(self.admission, self.config)
        self.settling = deliveries.has_unsettled
        return waiting

    def _take_batch(self) -> list[Claimed]:
        return [claim for name in self._next_names() if (claim := self._take(name))]

    def _next_names(self) -> list[str]:
        """A batch of complete files, from a new look or left over from the last."""
        batch = self.config.spool.batch
        names = self.waiting_names[:batch]
        if names:
            names = [name for name in names if not self._is_written_again(name)]
        elif self.look_around:
            self.waiting_names, self.settling = self.spool.complete()
            names = self.waiting_names[:batch]
        del self.waiting_names[:batch]
        return names

    def _is_written_again(self, name: str) -> bool:
        """Whether somebody writes to a file that was complete when it was looked at: the next look finds it."""
        is_open = being_written(os.path.join(self.paths.spool, name))
        self.settling = self.settling or is_open
        return is_open

    def _with_left_files(self, waiting: list[Claimed]) -> list[Claimed]:
        """These, and files that were claimed by a process that died, or laid down while the store was away."""
        ids = {claim.id for claim in waiting}
        left = [claim for claim in self.admission.claimed() if claim.id not in ids]
        return waiting + left[: self.config.spool.batch]

    def _take(self, name: str) -> Claimed | None:
        """Take a file out of the spool; one that cannot be moved is explained once, and left alone until it changes."""
        before = self.spool.identity(name)
        claimed = self.admission.claim(name)
        if claimed is None and before is not None and before == self.spool.identity(name):
            self.spool.leave(name, before)
            self._explain(name)
        return claimed

    def _explain(self, name: str) -> None:
        """Write beside the refused files why this one stays in the spool."""
        short = os.fsdecode(os.fsencode(name)[-_NAME_ROOM:])
        write_atomically(os.path.join(self.paths.rejected, f"{short}.error"), _IMMOVABLE.encode())

    # ------------------------------------------------------------------ step: promote due tasks

    def promote_due_tasks(self) -> None:
        """Tasks whose time has come take part from now on."""
        while self.store.promote_due(self.clock.wall_ms()):
            pass

    # ------------------------------------------------------------------ step: replace spawner

    def replace_spawner(self) -> None:
        """A spawner that died is done with; the next start brings a new one."""
        if self.launcher.died:
            self._recall("it has ended")

    def leave_spawner(self) -> None:
        """It took a request, and nobody came: whatever is wrong with it, the next start brings another."""
        self.log.error("spawner_left", spawner=self.launcher.pid)
        self.launcher.close()

    def _recall(self, why: str) -> None:
        """The spawner took requests with it: claims that nobody answers for go back to the queue.

        Nothing is started for a moment: if a spawner dies each time, nothing must spin.
        """
        self._rest()
        self.log.error("spawner_died", why=why, next_in=self.config.intervals.poll)
        locks = {lock.token: lock for lock in self.store.locks() if lock.holder == this_holder()}
        for task in self.store.active():
            if task.status is Status.CLAIMED and task.token in locks:
                self._take_back(task, locks[task.token], SPAWNER_DIED)
        self._unstarted = []
        self.launcher.close()

    def rest(self, why: str) -> None:
        """The machine has no room for another run: start nothing for a moment."""
        self._rest()
        self.log.error("no_room_to_start", error=why, next_in=self.config.intervals.poll)

    def _rest(self) -> None:
        self._start_after = self.clock.boot() + self.config.intervals.poll

    @property
    def _is_resting(self) -> bool:
        return self.clock.boot() < self._start_after

    # ------------------------------------------------------------------ step: start tasks

    def start_tasks(self) -> None:
        """Fill the free slots by fair share; users with a lock are passed over, and so is who cannot start."""
        self.has_more = False
        if self._is_resting or self.shortage:
            return
        try:
            self.has_more = self._start_rounds()
        except SpawnerGoneError as error:
            self._recall(str(error))

    def _start_rounds(self) -> bool:
        """Claim and start, round after round; True if there may be more."""
        out = self.instance.locks.foreign()
        self._let_back(self._kept_out - out)
        self._kept_out = set(out)
        more = self._fill_slots(out)
        return self.spool.watch_locks(wanted=bool(out)) or more

    def _let_back(self, users: set[str]) -> None:
        """Whoever was kept out by a lock file takes part again, and has saved nothing up meanwhile."""
        for user in users:
            self.store.come_back(user, self.clock.wall_ms())

    def _fill_slots(self, out: set[str]) -> bool:
        """Start whoever is next and not left out; True if there may be more. Who cannot be started is left out too."""
        for _ in range(ROUNDS):
            self._unstarted = self._unstarted or self._claim(out)
            if not self._unstarted:
                return False
            while self._unstarted:
                if not self._start(self._unstarted[0]):
                    out.add(self._unstarted[0].task.spec.user)
                del self._unstarted[0]
        return True

    def _claim(self, out: set[str]) -> list[Claim]:
        """Decide and claim, in one transaction with the lock."""
        config = self.config
        free = config.slots.max - self.store.count_active()
        if free <= 0 or self._is_resting:
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
        task, run_dir = claim.task, self._run_dir(claim.task)
        try:
            obstacle = self._make_run(claim, run_dir)
        except CannotLaunchError as error:
            self._fail(claim, str(error))
            return True
        if obstacle:
            give_back(self.instance, task, claim.lock, why=obstacle, evidence=_NEVER_LAUNCHED)
            rundir.discard(run_dir)
            return False
        self.launcher.launch(run_dir)
        self.log.info("claimed", token=claim.token, **about(task))
        return True

    def _make_run(self, claim: Claim, run_dir: str) -> str:
        """All that a supervisor needs, or what is in the way. Until one is asked to come, nothing can have started."""
        try:
            if not self.instance.locks.show(claim.lock):
                return FOREIGN_LOCK  # somebody made the file between our look and our claim
            starter = starter_of(self.config, self.paths, self.instance.environ)
            launch = prepare_launch(claim, run_dir, self.config, self.paths, self.instance.environ, starter)
            rundir.create(run_dir, self._meta(claim, launch), launch, claim.task.spec.prompt)
        except (OSError, ValueError) as error:
            return self._obstacle(error)
        return ""

    def _obstacle(self, error: OSError | ValueError) -> str:
        """What a failed start is called; the machine's trouble is everybody's, so nobody is started for a moment."""
        if is_machine_trouble(error):
            self.rest(str(error))
            return f"{MACHINE_TROUBLE}: {error}"
        return f"its start failed: {error}"

    def _run_dir(self, task: Task) -> str:
        return rundir.active_dir(self.paths.conductor, task.spec.project, task.id, task.attempt)

    def _meta(self, claim: Claim, launch: Launch) -> Meta:
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
            unit=launch.unit.name if launch.unit else "",
            unit_by=launch.unit.by if launch.unit else "",
        )

    def _take_back(self, task: Task, lock: Lock, why: str) -> None:
        """A start went wrong on the way: queue the task again, unless it did start after all."""
        run_dir = self._run_dir(task)
        try:
            came = void(run_dir, lock.lock_id)
        except OSError as error:
            # One place on the disk is in a bad state: the watchdog will say so again. Others must not wait for it.
            self.log.error("cannot_take_back", error=str(error), **about(task))
            return
        if came is Void.NEVER_STARTED:
            give_back(self.instance, task, lock, why=why, evidence={"proof": "voided before its supervisor came"})
            rundir.discard(run_dir)

    def _fail(self, claim: Claim, error: str) -> None:
        """It cannot be started as things are configured: trying again would only repeat that."""
        outcome = Outcome(
            status=Status.FAILED,
            reason="cannot_launch",
            error=error,
            finished_at=self.clock.wall_ms(),
            evidence=_NEVER_LAUNCHED,
        )
        record_ends(self.instance, [(claim.lock, ended(claim.task, outcome))])
        ring_all(self.paths.bells, "ended", but="daemon")

    # ------------------------------------------------------------------ step: show capacity

    def show_capacity(self) -> None:
        """capacity.json says how many slots are taken, and by whom; written when that changed, and not too often."""
        now = self.clock.boot()
        if now < self._shown_at + SHOW_EVERY:
            self.show_at = self._shown_at + SHOW_EVERY
            return
        self.show_at, self._shown_at = None, now
        data = json.dumps(capacity(self.store.db, self.config.slots.max), indent=2).encode() + b"\n"
        if data != self._shown:
            write_atomically(self.paths.capacity, data)
            self._shown = data

    # ------------------------------------------------------------------ step: look ahead

    def look_ahead(self) -> None:
        """Note when the next pass must come at the latest."""
        self.next_due = self.store.next_due()

    # ------------------------------------------------------------------ settings and end

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.instance.config

    def use_settings(self) -> None:
        """Hand on settings that were read again."""
        if not self.has_new_settings:
            return
        self.admission.config = self.config
        self.spool.settle = self.config.intervals.settle
        self.instance.apply_shares()
        self.has_new_settings = False

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.spool.close()
        if self.deliveries is not None:
            self.deliveries.close()
        self.launcher.close()
