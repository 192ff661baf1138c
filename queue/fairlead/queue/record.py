"""A task as one readable JSON object: what `show --json` prints, the archive keeps, and `rebuild` reads back."""

import calendar
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.base.clock import iso
from fairlead.queue.states import Status
from fairlead.queue.task import PRIORITIES, Attempt, Event, Outcome, Spec, Task

#: Fields of the task and its outcome that are wall milliseconds in memory and text in a record.
_TIMES = ("created_at", "run_at", "started_at", "finished_at", "updated_at")
_ATTEMPT_TIMES = ("claimed_at", "started_at", "finished_at")
_SPEC = tuple(name for name in Spec.__struct_fields__ if name != "priority")
_OUTCOME = tuple(name for name in Outcome.__struct_fields__ if name not in ("status", "finished_at", "artifacts"))


def record_of(task: Task, attempts: Iterable[Attempt], events: Iterable[Event]) -> dict[str, Any]:
    """Everything there is to know of a task; times are UTC, ISO-8601."""
    spec, outcome = task.spec, task.outcome
    times = {
        "created_at": task.created_at,
        "run_at": spec.run_at,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "updated_at": task.updated_at,
    }
    data: dict[str, Any] = {
        "id": task.id,
        "status": task.status,
        "priority": task.priority,
        **{name: getattr(spec, name) for name in _SPEC},
        **{name: iso(times[name]) for name in _TIMES},
        **{name: getattr(outcome, name) if outcome else None for name in _OUTCOME},
        "artifacts": outcome.artifacts if outcome else (),
        "artifact_patterns": spec.artifacts,
        "cancel": task.cancel,
        "seq": task.seq,
        "version": task.version,
        "attempt": task.attempt,
        "token": task.token,
        "attempts": [_attempt_record(attempt) for attempt in attempts],
        "events": [_event_record(event) for event in events],
    }
    plain: dict[str, Any] = msgspec.to_builtins(data)
    return plain


def spec_record(spec: Spec) -> dict[str, Any]:
    """What was asked for, readable."""
    plain: dict[str, Any] = msgspec.to_builtins({name: getattr(spec, name) for name in _SPEC})
    return plain | {"priority": PRIORITIES[spec.priority], "run_at": iso(spec.run_at)}


def task_of(record: dict[str, Any]) -> tuple[Task, list[Attempt]]:
    """The task and its attempts as a record tells them; raises msgspec's or Python's ValueError if it is none."""
    times = {name: milliseconds(record.get(name)) for name in _TIMES}
    status = Status(record["status"])
    spec = {name: record[name] for name in _SPEC if name in record} | {
        "priority": PRIORITIES.index(record["priority"]),
        "artifacts": record.get("artifact_patterns", ()),
        "run_at": times.pop("run_at"),
    }
    task = {name: record[name] for name in ("id", "seq", "version", "attempt", "token", "cancel")}
    outcome = {name: record[name] for name in _OUTCOME if record.get(name) is not None}
    if outcome:
        outcome |= {
            "status": status,
            "finished_at": times["finished_at"] or 0,
            "artifacts": record.get("artifacts", ()),
        }
    whole = task | times | {"status": status, "spec": spec, "outcome": outcome or None}
    attempts = [_attempt_of(one) for one in record.get("attempts", ())]
    return msgspec.convert(whole, Task), msgspec.convert(attempts, list[Attempt])


def _attempt_record(attempt: Attempt) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(attempt)
    return data | {name: iso(getattr(attempt, name)) for name in _ATTEMPT_TIMES}


def _attempt_of(data: dict[str, Any]) -> dict[str, Any]:
    return data | {name: milliseconds(data.get(name)) for name in _ATTEMPT_TIMES}


def _event_record(event: Event) -> dict[str, Any]:
    status = {"status": event.status} if event.status else {}
    return {"timestamp": iso(event.at), "event": event.event} | status | event.detail


def milliseconds(text: str | None) -> int | None:
    """The reverse of `iso`."""
    if text is None:
        return None
    moment = time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    return calendar.timegm(moment) * 1000 + int(text[20:23])
