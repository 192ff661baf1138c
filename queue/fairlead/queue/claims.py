"""Ending a claim: the visible lock goes first, then the row, the task and the account in one transaction."""

from collections.abc import Sequence
from typing import Any

from fairlead.base.identity import boot_id
from fairlead.queue.errors import StaleTokenError
from fairlead.queue.instance import Instance
from fairlead.queue.states import Status
from fairlead.queue.store import Ended, Holder, Lock, ended
from fairlead.queue.task import NEVER_STARTED, Outcome, Task, about

#: Why a task was given back; what they begin with counts, details may follow.
FOREIGN_LOCK = "a foreign lock file is there"
SPAWNER_DIED = "the spawner died before it started"
REBOOT = "the machine went down before it started"
MACHINE_TROUBLE = "the machine could not make room for its run"
DISPATCHER_DIED = "its dispatcher died before it started"
NOBODY_CAME = "no supervisor came for it in time"
TOO_LATE = "it did not start in time"
#: Those that say nothing about the task: such tries do not count.
_BLAMELESS = (FOREIGN_LOCK, SPAWNER_DIED, REBOOT, MACHINE_TROUBLE, NOBODY_CAME)


def why_not_started(holder: Holder, *, came: bool = False) -> str:
    """Why a claim by this dispatcher came to nothing; `came`: a supervisor was there, and had trouble."""
    if holder.boot_id != boot_id():
        return REBOOT
    if holder.has_ended:
        return DISPATCHER_DIED
    return TOO_LATE if came else NOBODY_CAME


def record_ends(instance: Instance, ends: Sequence[tuple[Lock, Ended]]) -> None:
    """Record how attempts ended and free their locks; one whose token is out of date is refused and logged."""
    if not ends:
        return
    for lock, end in ends:
        if not end.quarantine:
            _hide(instance, lock)
    taken = instance.store.finish([end for _, end in ends], now=instance.clock.wall_ms())
    for (lock, end), was_taken in zip(ends, taken, strict=True):
        _tell(instance, lock, end, was_taken=was_taken)


def give_back(instance: Instance, task: Task, lock: Lock, *, why: str, evidence: dict[str, Any]) -> None:
    """Queue a task again whose agent provably never started; after too many such tries it fails."""
    tries = _tries_in_a_row(instance, task, why)
    if tries >= instance.config.limits.start_attempts:
        record_ends(instance, [(lock, _given_up(instance, task, tries, why, evidence))])
        return
    _hide(instance, lock)
    try:
        instance.store.unclaim(task.id, task.token, reason=why, now=instance.clock.wall_ms(), evidence=evidence)
    except StaleTokenError as error:
        # Daemon and watchdog may both find that it never started: whoever is second has nothing to do.
        instance.log.info("refused", what="requeue", error=str(error), **about(task))
        return
    instance.log.warning("requeued", why=why, **about(task))


def _hide(instance: Instance, lock: Lock) -> None:
    """Remove a lock's files; where that fails, others are not to wait, and what stays is known as a left-over."""
    try:
        instance.locks.files.drop(lock.user, lock.lock_id)
    except OSError as error:
        instance.log.error("lock_file_stays", lock=lock.name, error=str(error))


def _tries_in_a_row(instance: Instance, task: Task, why: str) -> int:
    """How often in a row it was claimed and not started, this time included."""
    count = int(not why.startswith(_BLAMELESS))
    for attempt in reversed(instance.store.attempts(task.id)):
        if attempt.number == task.attempt:
            continue
        if attempt.reason != NEVER_STARTED:
            break
        count += not attempt.error.startswith(_BLAMELESS)
    return count


def _given_up(instance: Instance, task: Task, tries: int, why: str, evidence: dict[str, Any]) -> Ended:
    outcome = Outcome(
        status=Status.FAILED,
        reason=NEVER_STARTED,
        error=f"it could not be started, {tries} times in a row: {why}",
        finished_at=instance.clock.wall_ms(),
        evidence=evidence,
    )
    return ended(task, outcome)


def _tell(instance: Instance, lock: Lock, end: Ended, *, was_taken: bool) -> None:
    outcome = end.outcome
    whom: dict[str, object] = {"task": end.task_id, "user": lock.user, "attempt": end.attempt, "project": end.project}
    fields = whom | {"token": end.token, "reason": outcome.reason}
    if not was_taken:
        instance.log.warning("refused", what=f"end as {outcome.status}", **fields)
    elif end.quarantine:
        instance.log.warning("quarantined", lock=lock.name, evidence=outcome.evidence, **fields)
    elif outcome.status is Status.COMPLETED:
        instance.log.info(outcome.status, held=round(outcome.held, 3), **fields)
    else:
        instance.log.warning(outcome.status, error=outcome.error, held=round(outcome.held, 3), **fields)
