"""What is true of a run: alive, ended, lost, never started. Evidence first, then a word."""

import os
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from fairlead.conductor import rundir
from fairlead.conductor.liveness import Void, find_supervisor, void
from fairlead.conductor.meta import VOID, CorruptMetaError, Meta, read_meta
from fairlead.conductor.prctl import has_moved_on
from fairlead.conductor.remains import Remains
from fairlead.queue.states import Status
from fairlead.queue.store import Lock
from fairlead.queue.task import Task


class Finding(StrEnum):
    """What a look at a run has found."""

    #: Claimed; its supervisor has not spoken yet.
    STARTING = "starting"
    ALIVE = "alive"
    #: The supervisor wrote the end.
    ENDED = "ended"
    #: It provably never started, and never will.
    NEVER_STARTED = "never_started"
    #: Its supervisor is gone without a word, and nothing of it is alive any more.
    DEAD = "dead"
    #: Its supervisor is gone, and some of it is still alive although it was told to end.
    UNDEAD = "undead"


class Verdict(Struct, frozen=True, kw_only=True):
    """A finding with what proves it."""

    finding: Finding
    meta: Meta | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


class Examiner:
    """Looks at runs of this boot of this host."""

    def __init__(self, conductor: str, boot_id: str, remains: Remains) -> None:
        self.conductor = conductor
        self.remains = remains
        self.boot_id = boot_id

    def run_dir(self, task: Task) -> str:
        """Where the task's current attempt lives."""
        return rundir.active_dir(self.conductor, task.spec.project, task.id, task.attempt)

    def examine(self, task: Task, lock: Lock, *, overdue: bool, rang: bool) -> Verdict:
        """Find out what is true of a task's current attempt.

        `overdue`: it should have started by now; `rang`: its supervisor has told of its start or its end.
        """
        run_dir = self.run_dir(task)
        rundir.regain(run_dir)
        meta = _meta_or_none(run_dir)
        if meta is not None and meta.ended:
            return Verdict(finding=Finding.ENDED, meta=meta, evidence={"written_by": "supervisor"})
        if task.status is Status.RUNNING or (meta is not None and meta.status == Status.RUNNING):
            return self._running(task, lock)
        if rang and not os.path.lexists(run_dir):
            return self._without_directory(task, lock)
        if overdue or (meta is not None and (meta.status == VOID or meta.boot_id != self.boot_id)):
            return self._unstarted(task, lock)
        return Verdict(finding=Finding.STARTING, meta=meta)

    def _running(self, task: Task, lock: Lock) -> Verdict:
        """It was started: alive as long as its supervisor holds the directory."""
        run_dir = self.run_dir(task)
        try:
            with rundir.only_inhabitant(run_dir) as alone:
                # Read behind the lock: the supervisor may have ended between the first look and this one.
                meta = _meta_or_none(run_dir)
                if not alone:
                    return Verdict(finding=Finding.ALIVE, meta=meta)
                if meta is not None and meta.ended:
                    return Verdict(finding=Finding.ENDED, meta=meta, evidence={"written_by": "supervisor"})
                if task.status is Status.RUNNING and is_looked_after(lock):
                    return Verdict(finding=Finding.ALIVE, meta=meta)  # its directory was replaced: it will move in
                return self._deserted(task, meta, lock)
        except (FileNotFoundError, NotADirectoryError):
            return self._without_directory(task, lock)

    def _without_directory(self, task: Task, lock: Lock) -> Verdict:
        """Somebody removed the run directory: its supervisor answers for it, if there is one."""
        is_known = task.status is Status.RUNNING
        if is_looked_after(lock) if is_known else find_supervisor(lock.lock_id):
            return Verdict(finding=Finding.ALIVE)
        return self._deserted(task, None, lock)

    def _deserted(self, task: Task, meta: Meta | None, lock: Lock) -> Verdict:
        """No supervisor any more: end what it left behind, and look whether that is gone."""
        boot_id = meta.boot_id if meta is not None else lock.holder.boot_id
        if boot_id != self.boot_id:
            evidence: dict[str, Any] = {"proof": "another boot", "boot_id": boot_id}
            return Verdict(finding=Finding.DEAD, meta=meta, evidence=evidence)
        left = self.remains.end(task.id, task.attempt, lock.lock_id, meta)
        evidence = {"proof": "no supervisor", "left": [list(process) for process in left]}
        return Verdict(finding=Finding.UNDEAD if left else Finding.DEAD, meta=meta, evidence=evidence)

    def _unstarted(self, task: Task, lock: Lock) -> Verdict:
        """Take it back, unless it did start after all."""
        came = void(self.run_dir(task), lock.lock_id)
        if came is Void.NEVER_STARTED:
            return Verdict(finding=Finding.NEVER_STARTED, evidence={"proof": "voided before its supervisor came"})
        if came is Void.INHABITED:
            return Verdict(finding=Finding.STARTING)
        return self._running(task, lock)


def is_looked_after(lock: Lock) -> bool:
    """Whether the supervisor that answers for a run still does: it lives, and has not gone on to another."""
    return not lock.holder.has_ended and not has_moved_on(lock.holder.pid, lock.lock_id)


def _meta_or_none(run_dir: str) -> Meta | None:
    if not os.path.isdir(run_dir):
        return None
    try:
        return read_meta(run_dir)
    except CorruptMetaError:
        return None
