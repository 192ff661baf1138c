"""Active runs: what became of each, recorded; requests to stop handed on; those without a pulse ended."""

import json
import math
import os
from contextlib import suppress

from msgspec.structs import replace

from fairlead.base.bell import ring
from fairlead.base.errors import FairleadError, UnavailableError
from fairlead.base.files import write_atomically
from fairlead.base.identity import ProcessId, boot_id, host, is_alive
from fairlead.conductor import rundir, tree
from fairlead.conductor.liveness import find_supervisor
from fairlead.conductor.meta import NO_ROOM, CorruptMetaError, Meta, last_touch, read_meta
from fairlead.conductor.orders import read_launch
from fairlead.conductor.output import last_words
from fairlead.conductor.prctl import has_moved_on
from fairlead.conductor.remains import Remains
from fairlead.conductor.starter import starter_of
from fairlead.conductor.verdict import Examiner, Finding, Verdict
from fairlead.queue.claims import MACHINE_TROUBLE, NOBODY_CAME, give_back, record_ends, why_not_started
from fairlead.queue.errors import StaleTokenError, StoreBrokenError
from fairlead.queue.instance import Instance
from fairlead.queue.states import Status
from fairlead.queue.store import Ended, Holder, Lock, ended
from fairlead.queue.task import Outcome, Task, about
from fairlead.watchdog.open_files import locked_by
from fairlead.watchdog.pulse import MARGIN, Pulse, Pulses, feel, hard_stop, is_silent

#: Leases are renewed when this part of them is used up, not with every heartbeat.
RENEW_AFTER = 0.1
_ALL_KILLED = "all processes were killed and seen gone"
_SURVIVED = "some processes were killed and are still there"


class Runs:
    """Looks at the active attempts of this host and records what it finds."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.store = instance.store
        self.clock = instance.clock
        self.boot_id = boot_id()
        self.host = host()
        self.remains = Remains(
            lambda: starter_of(instance.config, instance.paths, instance.environ), instance.paths.run
        )
        self.examiner = Examiner(instance.paths.conductor, self.boot_id, self.remains)
        self.pulses = Pulses()
        #: Users of whom a run has ended whose supervisor could not clear up behind it.
        self.deserted: set[str] = set()

    def look(self, names: set[str] | None = None) -> bool:
        """Look at all runs, or at those whose directories are named; True if a lock was freed or a task queued."""
        locks = {lock.token: lock for lock in self.store.locks()}
        active = [task for task in self.store.active() if task.token in locks]
        if names is None:
            self.pulses.begin_look(self.clock.boot(), self.instance.config.intervals.watch)
            self.pulses.keep_only({task.token for task in active})
        ends: list[tuple[Lock, Ended]] = []
        freed = False
        for task in active:
            rang = names is not None and self._name(task) in names
            if rang or names is None:
                lock = locks[task.token]
                end, gave_back = self._look_safely(task, lock, rang=rang)
                freed = freed or gave_back
                ends += [(lock, end)] if end else []
                if end and end.outcome.evidence.get("written_by") != "supervisor":
                    self.deserted.add(task.spec.user)
        record_ends(self.instance, ends)
        return freed or bool(ends)

    def _name(self, task: Task) -> str:
        return f"{task.id}.{task.attempt}"

    def _look_safely(self, task: Task, lock: Lock, *, rang: bool) -> tuple[Ended | None, bool]:
        """One run whose files are in a state that nobody thought of must not keep the others from being looked at."""
        try:
            return self._look_at(task, lock, rang=rang)
        except (UnavailableError, StoreBrokenError):
            raise  # the store's trouble is everybody's
        except (FairleadError, OSError, ValueError) as error:
            self.instance.log.error("look_failed", error=str(error), **about(task))
            return None, False

    def _look_at(self, task: Task, lock: Lock, *, rang: bool) -> tuple[Ended | None, bool]:
        """What is to be recorded of one run, and whether it was given back to the queue."""
        verdict = self.examiner.examine(task, lock, overdue=self._is_overdue(task, lock), rang=rang)
        match verdict.finding:
            case Finding.STARTING:
                self._end_if_stuck(task, lock)
                return None, False
            case Finding.ALIVE:
                return self._attend(task, lock, verdict.meta, rang=rang), False
            case Finding.ENDED:
                return _as_written(task, verdict.meta), False
            case Finding.NEVER_STARTED:
                return self._never_started(task, lock, verdict)
        return self._lost(task, lock, verdict), False

    def _end_if_stuck(self, task: Task, lock: Lock) -> None:
        """A supervisor that came and said nothing for the whole lease is ended; the next look takes the run back."""
        now = self.clock.boot()
        if now - self.pulses.of(task.token, now).first_seen <= self.instance.lease:
            return
        stuck = locked_by(self.examiner.run_dir(task))
        left = self.remains.end(task.id, task.attempt, lock.lock_id, None, tree.identify(stuck))
        self.instance.log.warning("stuck_start", pids=stuck, left=left, **about(task))

    def _is_overdue(self, task: Task, lock: Lock) -> bool:
        """Whether a claimed run should have started by now, or need not start any more."""
        now = self.clock.boot()
        return (
            task.cancel is not None
            or now - self.pulses.of(task.token, now).first_seen > self.instance.config.intervals.start_grace
            or (task.status is Status.CLAIMED and lock.holder.has_ended)
        )

    # ------------------------------------------------------------------ alive

    def _attend(self, task: Task, lock: Lock, meta: Meta | None, *, rang: bool) -> Ended | None:
        """It lives: note its start, hand on a request to stop, feel its pulse; end it if it has none.

        Without a readable meta.json nothing of it can be felt: then it has its lease, and no longer.
        """
        supervisor = _supervisor(task, lock, meta)
        now = self.clock.boot()
        pulse = self.pulses.of(task.token, now)
        if task.cancel is not None and supervisor is not None:
            grace = self.instance.config.limits.grace if task.spec.grace is None else task.spec.grace
            pulse.obey_by = min(pulse.obey_by, now + grace + MARGIN)
            self._ask_to_stop(task, supervisor)
        if meta is not None:
            self._feel(task, lock, meta, pulse, rang=rang)
        elif task.status is Status.CLAIMED:
            self._note_vanished(task, lock)
        return self._end_if_over(task, lock, meta, pulse)

    def _feel(self, task: Task, lock: Lock, meta: Meta, pulse: Pulse, *, rang: bool) -> None:
        """Take note of what meta.json says.

        A supervisor rings, and beats, once its agent has been started: before that it may find no room for it, and the
        run is to be given back then, which one that was noted as started could not be.
        """
        if task.status is Status.CLAIMED and (rang or meta.heartbeat.seq):
            self._note_start(task, lock, meta)
        sign = (meta.heartbeat.seq, last_touch(self.examiner.run_dir(task)))
        if feel(pulse, sign, self.clock.boot()):
            self._renew(lock)
        if pulse.hard_stop is None:
            pulse.hard_stop = self._hard_stop(task, meta)

    def _hard_stop(self, task: Task, meta: Meta) -> float:
        """When it must be over at the latest; its supervisor knows that even where task.json was taken away."""
        try:
            return hard_stop(meta, read_launch(self.examiner.run_dir(task)))
        except (FairleadError, OSError, ValueError) as error:
            self.instance.log.warning("no_time_limit_known", error=str(error), **about(task))
            return math.inf

    def _note_start(self, task: Task, lock: Lock, meta: Meta) -> None:
        """From now on the supervisor answers for the lock, in the row and in its mirror."""
        if meta.supervisor is not None and meta.started_at is not None:
            self._record_start(task, lock, meta.supervisor.process, meta.started_at)

    def _note_vanished(self, task: Task, lock: Lock) -> None:
        """Its directory is gone and it lives: note its start, so that its end is not taken for one that never came."""
        supervisor = find_supervisor(lock.lock_id)
        if supervisor is not None:
            self.instance.log.warning("directory_vanished", **about(task))
            self._record_start(task, lock, supervisor, self.clock.wall_ms())

    def _record_start(self, task: Task, lock: Lock, supervisor: ProcessId, started_at: int) -> None:
        holder = Holder(host=self.host, boot_id=self.boot_id, pid=supervisor.pid, start=supervisor.start)
        with suppress(StaleTokenError):
            self.store.started(task.id, task.token, started_at=started_at, holder=holder)
            self.instance.locks.files.refresh(replace(lock, holder=holder))
            self.instance.log.info("started", supervisor=supervisor.pid, **about(task))

    def _ask_to_stop(self, task: Task, supervisor: ProcessId) -> None:
        """Leave the note that says who wants it, then signal. Signalling again is harmless, forgetting it is not."""
        note = os.path.join(self.examiner.run_dir(task), rundir.CANCEL)
        if not os.path.exists(note):
            self.instance.log.info("asked_to_stop", by=task.cancel, **about(task))
            try:
                write_atomically(note, json.dumps({"by": task.cancel}).encode())
            except OSError as error:
                # Taken away: its supervisor makes it anew. Or there is no room: then it has its time, and no longer.
                self.instance.log.warning("cannot_ask_to_stop", error=str(error), **about(task))
                return
        tree.send_safely(supervisor, rundir.LOOK_FOR_NOTE)

    def _renew(self, lock: Lock) -> None:
        now, lease = self.clock.wall_ms(), self.instance.lease
        if lock.expires_at - now < (1 - RENEW_AFTER) * lease * 1000:
            self.store.renew([lock.lock_id], now=now, lease=lease)
            renewed = self.store.lock(lock.name)
            if renewed is not None and renewed.lock_id == lock.lock_id:
                self.instance.locks.files.refresh(renewed)

    def _end_if_over(self, task: Task, lock: Lock, meta: Meta | None, pulse: Pulse) -> Ended | None:
        """A run without a pulse for its whole lease, or far beyond its time limit, is ended by force."""
        now = self.clock.boot()
        status = Status.FAILED
        if task.cancel is not None and now > pulse.obey_by:
            status, reason, error = Status.CANCELLED, "cancelled", f"cancelled by {task.cancel}; it had to be killed"
        elif is_silent(pulse, now, self.instance.lease):
            reason, error = "hang", f"no heartbeat for {self.instance.lease:g} s, the lease of its lock"
        elif pulse.hard_stop is not None and now > pulse.hard_stop:
            reason, error = "timeout", "still there long after its time limit; its supervisor did not end it"
        else:
            return None
        left = self._end_tree(task, lock, meta)
        if not left and (written := self._written_at_last(task)):
            return written
        outcome = Outcome(
            status=status,
            reason=reason,
            error=error,
            finished_at=self.clock.wall_ms(),
            held=now - (meta.claimed_boot if meta else pulse.first_seen),
            log_tail=last_words(self.examiner.run_dir(task)),
            evidence={"proof": _SURVIVED if left else _ALL_KILLED, "left": [list(one) for one in left]},
        )
        return _ended(task, outcome, meta, quarantine=bool(left))

    def _end_tree(self, task: Task, lock: Lock, meta: Meta | None) -> list[ProcessId]:
        """Kill the supervisor with everything of its run; returns what is still there."""
        supervisor = _supervisor(task, lock, meta)
        is_there = supervisor is not None and is_alive(supervisor)
        more = [supervisor, *tree.below(supervisor.pid)] if supervisor is not None and is_there else []
        return self.remains.end(task.id, task.attempt, lock.lock_id, meta, more)

    def _written_at_last(self, task: Task) -> Ended | None:
        """The end, if the supervisor wrote it down just before it was killed."""
        try:
            meta = read_meta(self.examiner.run_dir(task))
        except CorruptMetaError:
            return None
        return _as_written(task, meta) if meta.ended else None

    # ------------------------------------------------------------------ over

    def _never_started(self, task: Task, lock: Lock, verdict: Verdict) -> tuple[Ended | None, bool]:
        run_dir = self.examiner.run_dir(task)
        if task.cancel is None:
            why = _why_not_started(run_dir, lock)
            give_back(self.instance, task, lock, why=why, evidence=verdict.evidence)
            rundir.discard(run_dir)
            if why.startswith((NOBODY_CAME, MACHINE_TROUBLE)):
                ring(self.instance.paths.bells, "daemon", why)
            return None, True
        outcome = Outcome(
            status=Status.CANCELLED,
            reason="cancelled",
            error=f"cancelled by {task.cancel} before it started",
            finished_at=self.clock.wall_ms(),
            evidence=verdict.evidence,
        )
        return ended(task, outcome), False

    def _lost(self, task: Task, lock: Lock, verdict: Verdict) -> Ended:
        """Nobody saw how it ended: that is never a success, and never silently run again."""
        meta = verdict.meta
        rebooted = (meta.boot_id if meta else lock.holder.boot_id) != self.boot_id
        outcome = Outcome(
            status=Status.LOST,
            reason="reboot" if rebooted else "supervisor_died",
            error="nobody saw its end: " + ("the machine went down" if rebooted else "its supervisor was killed"),
            finished_at=self.clock.wall_ms(),
            held=0.0 if meta is None or rebooted else self.clock.boot() - meta.claimed_boot,
            log_tail=last_words(self.examiner.run_dir(task)),
            evidence=verdict.evidence,
        )
        return _ended(task, outcome, meta, quarantine=verdict.finding is Finding.UNDEAD)

    # ------------------------------------------------------------------ quarantine

    def look_at_quarantine(self) -> bool:
        """Free quarantined locks whose last processes have gone by now; True if one was freed."""
        freed = False
        for lock in self.store.locks():
            if lock.state == "quarantined" and lock.kind == "run":
                freed = self._look_at_quarantined(lock) or freed
        return freed

    def _look_at_quarantined(self, lock: Lock) -> bool:
        noted = [ProcessId(*pair) for pair in lock.evidence.get("left", ())]
        same_boot = lock.holder.boot_id == self.boot_id
        if same_boot and self.remains.are_there(lock.task_id, self._attempt_of(lock), lock.lock_id, noted):
            return False
        self.instance.locks.files.drop(lock.user, lock.lock_id)
        evidence = {"proof": "nothing of the run is alive any more"}
        now = self.clock.wall_ms()
        freed = self.store.release(lock.lock_id, why="its last processes are gone", now=now, evidence=evidence)
        self.instance.log.info("quarantine_ended", lock=lock.name, task=lock.task_id)
        return freed

    def _attempt_of(self, lock: Lock) -> int:
        """Which attempt of its task took a lock."""
        return next((one.number for one in self.store.attempts(lock.task_id) if one.token == lock.token), 0)


def _why_not_started(run_dir: str, lock: Lock) -> str:
    """Why a run came to nothing; a supervisor that could not start its agent has said so."""
    meta = read_meta(run_dir)
    if meta.reason == NO_ROOM:
        return f"{MACHINE_TROUBLE}: {meta.error}"
    return why_not_started(lock.holder, came=os.path.lexists(os.path.join(run_dir, rundir.TRACE)))


def _supervisor(task: Task, lock: Lock, meta: Meta | None) -> ProcessId | None:
    """Who looks after the run: once its start was recorded the store knows, before that only meta.json does."""
    noted = lock.holder if task.status is Status.RUNNING else meta.supervisor if meta else None
    if noted is None or has_moved_on(noted.pid, lock.lock_id):
        return None
    return noted.process


def _as_written(task: Task, meta: Meta | None) -> Ended:
    """The end as the supervisor wrote it."""
    if meta is None:
        raise AssertionError("an end without a meta.json")
    outcome = Outcome(
        status=meta.final_status,
        reason=meta.reason,
        error=meta.error,
        exit_code=meta.exit_code,
        signal=meta.signal,
        finished_at=meta.finished_at or 0,
        held=meta.held,
        cost=meta.cost,
        result=meta.result,
        artifacts=tuple(meta.artifacts),
        log_tail=meta.log_tail,
        evidence={"written_by": "supervisor"},
    )
    return _ended(task, outcome, meta)


def _ended(task: Task, outcome: Outcome, meta: Meta | None, *, quarantine: bool = False) -> Ended:
    return ended(task, outcome, started_at=meta.started_at if meta else None, quarantine=quarantine)
