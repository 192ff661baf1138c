"""What is shown of tasks, events and locks: all of it, or what is everybody's to see."""

from typing import Any

from fairlead.base.clock import iso
from fairlead.queue.lockfiles import LockFile
from fairlead.queue.record import record_of
from fairlead.queue.store import Lock, PastLock
from fairlead.queue.task import Event, Task

#: What everybody may know of anybody's task.
PUBLIC = (
    "id",
    "status",
    "user",
    "project",
    "priority",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "updated_at",
    "attempt",
)
#: Events of no task whose details are for everybody: they say why nothing starts.
_FOR_ALL = frozenset({"paused", "resumed"})


def public(record: dict[str, Any]) -> dict[str, Any]:
    """What everybody may know of a task, of its whole record."""
    return {name: record[name] for name in PUBLIC}


def summary(task: Task) -> dict[str, Any]:
    """The record without attempts and events."""
    return {key: value for key, value in record_of(task, (), ()).items() if key not in ("attempts", "events")}


def brief(task: Task) -> dict[str, Any]:
    """What is said of a task that was changed."""
    return {"id": task.id, "user": task.spec.user, "status": task.status.value, "cancel": task.cancel}


def event_view(event: Event, title: str, *, whole: bool) -> dict[str, Any]:
    """An event; its details and the task's title only for those who see the task."""
    told = whole or (event.task_id is None and event.event in _FOR_ALL)
    return {
        "seq": event.seq,
        "timestamp": iso(event.at),
        "event": event.event,
        "status": event.status.value if event.status else None,
        "task_id": event.task_id,
        "user": event.user,
        "title": title if whole else "",
        "detail": event.detail if told else {},
    }


def lock_view(lock: Lock, *, whole: bool) -> dict[str, Any]:
    """A lock; what was found out about its holder is not for everybody."""
    return {
        "name": lock.name,
        "user": lock.user,
        "lock_id": lock.lock_id,
        "token": lock.token,
        "task_id": lock.task_id,
        "kind": lock.kind,
        "state": lock.state,
        "acquired_at": iso(lock.acquired_at),
        "expires_at": iso(lock.expires_at),
        "acquired_by_pid": lock.holder.pid,
        "pid_start": lock.holder.start,
        "host": lock.holder.host,
        "boot_id": lock.holder.boot_id,
        "evidence": lock.evidence if whole else {},
    }


def past_lock_view(one: PastLock, *, whole: bool) -> dict[str, Any]:
    """A released lock; why, and on what evidence, is not for everybody."""
    names = ("name", "lock_id", "token", "task_id", "kind")
    times = ("acquired_at", "released_at")
    reasons = {"why": one.why if whole else "", "evidence": one.evidence if whole else {}}
    return {name: getattr(one, name) for name in names} | reasons | {name: iso(getattr(one, name)) for name in times}


def foreign_view(one: LockFile) -> dict[str, Any]:
    """A lock file that somebody else made."""
    kind, maker = one.kind.value, one.maker
    return {"user": one.user, "path": one.path, "kind": kind, "acquired_by_pid": one.pid, "maker": maker}
