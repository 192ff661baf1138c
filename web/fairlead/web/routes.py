"""The one table of what there is under /api/v1/: the server serves it, and openapi.json is made from it."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from fairlead.base.errors import UsageError
from fairlead.desk.desk import Desk
from fairlead.desk.submitting import File
from fairlead.queue.store import Holder
from fairlead.web import schemas as s

PREFIX = "/api/v1"


class Asked(NamedTuple):
    """One request, understood."""

    desk: Desk
    #: What the path's braces held.
    parts: Mapping[str, str]
    query: Any
    body: Any
    #: The process that asks, as the kernel names it; for locks, which it holds.
    holder: Callable[[], Holder]
    #: Nobody waits any longer: this is the answer.
    is_last: bool = True


#: Whether an answer has what the asker waits for.
Enough = Callable[[Any], bool]


class Route(NamedTuple):
    """One operation."""

    method: str
    path: str
    summary: str
    act: Callable[[Asked], Any]
    answer: type[Struct] | None
    query: type[s.Query] = s.NoQuery
    body: type[s.Body] | None = None
    #: With `wait=`: asked again, when something has happened, until this holds.
    enough: Enough = lambda _: True
    #: Waited for without being asked to, in seconds.
    patience: float = 0.0
    #: While waiting, looked at least so often, in seconds: a ring may be lost.
    look_again: float = 5.0

    @property
    def pattern(self) -> "re.Pattern[str]":
        """What matches its paths; a part is anything but a slash."""
        return re.compile(PREFIX + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path))


# ---------------------------------------------------------------------- looking


def _list(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    query = asked.query
    wanted = [word for word in query.status.split(",") if word]
    known = understood(s.Statuses, {"status": wanted}, "the query", strict=True).status
    return {"items": asked.desk.list_tasks(known, query.user, query.project, query.limit)}


def _task(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    look = asked.desk.find if asked.query.brief else asked.desk.show
    return look(asked.parts["id"])


def _events(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    query, task = asked.query, asked.parts.get("id")
    # Asked first: what comes in between is told twice rather than not at all.
    last = asked.desk.last_event()
    after = query.after if query.last is None else max(query.after, asked.desk.event_before(query.last, task))
    items = asked.desk.events(after, query.limit, task)
    return {"items": items, "last": max([last, *(item["seq"] for item in items)])}


def _logs(asked: Asked) -> Any:  # noqa: ANN401 - a piece of output, not JSON
    query = asked.query
    return asked.desk.logs(asked.parts["id"], asked.parts["stream"], query.attempt, query.offset)


# ---------------------------------------------------------------------- changing


def _files(asked: Asked) -> list[File]:
    return [File(file.name, file.content.encode("utf-8", "surrogatepass"), file.made) for file in asked.body.files]


def _change(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    given = msgspec.to_builtins(asked.body)
    version = given.pop("version", None)
    return asked.desk.change(asked.parts["id"], given, version)


def _requeue(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    """None while the watchdog is looking at the run."""
    if not asked.is_last and asked.desk.look_at_run(asked.parts["id"]):
        return None
    return asked.desk.requeue(asked.parts["id"])


def _let_go(asked: Asked) -> Any:  # noqa: ANN401 - JSON
    return asked.desk.let_go(asked.parts["user"], asked.parts["lock_id"], asked.holder(), asked.query.exit_code)


ROUTES = (
    Route("GET", "/status", "The whole queue at one moment", lambda a: a.desk.status(), s.StatusAnswer),
    Route("GET", "/capacity", "Slots and who uses them", lambda a: a.desk.capacity(), s.Capacity),
    Route("GET", "/tasks", "Tasks, newest first", _list, s.Tasks, s.ListQuery),
    Route(
        "POST",
        "/tasks",
        "Submit task files: all or none",
        lambda a: {"items": a.desk.submit(_files(a))},
        s.SubmittedFiles,
        body=s.Submission,
    ),
    Route(
        "POST",
        "/dry-run",
        "What would become of task files",
        lambda a: {"items": a.desk.foretell(_files(a))},
        s.ForetoldFiles,
        body=s.Submission,
    ),
    Route("GET", "/tasks/{id}", "One task", _task, s.TaskAnswer, s.TaskQuery),
    Route(
        "PATCH", "/tasks/{id}", "Change priority, time or title of a waiting task", _change, s.Changed, body=s.Changes
    ),
    Route("GET", "/tasks/{id}/why", "Why a task is not running", lambda a: a.desk.why(a.parts["id"]), s.WhyAnswer),
    Route(
        "GET",
        "/tasks/{id}/end",
        "How a task has ended, as soon as it has",
        lambda a: a.desk.end(a.parts["id"]),
        s.EndAnswer,
        s.WaitQuery,
        enough=lambda answer: bool(answer["is_over"]),
    ),
    Route(
        "GET",
        "/tasks/{id}/logs/{stream}",
        "What a task's agent wrote, as it is: stdout or stderr",
        _logs,
        None,
        s.LogQuery,
        enough=lambda piece: bool(piece.data or piece.is_over),
        look_again=0.2,  # agents do not ring for every line
    ),
    Route(
        "GET",
        "/tasks/{id}/events",
        "What happened to a task",
        _events,
        s.Events,
        s.EventQuery,
        enough=lambda answer: bool(answer["items"]),
    ),
    Route(
        "POST",
        "/tasks/{id}/cancel",
        "Cancel a waiting task, ask a running one to stop",
        lambda a: a.desk.cancel(a.parts["id"]),
        s.Brief,
        body=s.Nothing,
    ),
    Route(
        "POST",
        "/tasks/{id}/retry",
        "Run a failed, cancelled or lost task again",
        lambda a: a.desk.retry(a.parts["id"]),
        s.Brief,
        body=s.Nothing,
    ),
    Route(
        "POST",
        "/tasks/{id}/requeue",
        "Bring a task back that seems stuck, once its run is seen to be over",
        _requeue,
        s.Brief,
        body=s.Nothing,
        enough=lambda answer: answer is not None,
        patience=10.0,
    ),
    Route(
        "GET",
        "/events",
        "What happened",
        _events,
        s.Events,
        s.EventQuery,
        enough=lambda answer: bool(answer["items"]),
    ),
    Route("GET", "/locks", "Who holds which lock", lambda a: a.desk.locks(), s.Locks),
    Route(
        "GET",
        "/past-locks",
        "Released locks, newest first",
        lambda a: {"items": a.desk.past_locks(a.query.limit)},
        s.PastLocks,
        s.PastQuery,
    ),
    Route(
        "POST",
        "/locks/{user}",
        "Take a user's lock, which the asking process holds until it lets go or has ended",
        lambda a: {"lock": a.desk.try_lock(a.parts["user"], a.holder())},
        s.Held,
        s.WaitQuery,
        s.Nothing,
        enough=lambda answer: answer["lock"] is not None,
    ),
    Route("DELETE", "/locks/{user}/{lock_id}", "Let go of a lock", _let_go, s.LetGo, s.LetGoQuery),
    Route(
        "POST",
        "/locks/{user}/release",
        "Release a lock whose holder is gone",
        lambda a: a.desk.free_lock(a.parts["user"], force=a.body.force),
        s.Released,
        body=s.ReleaseBody,
    ),
    Route("GET", "/pauses", "What is paused", lambda a: {"items": a.desk.pauses()}, s.Pauses),
    Route(
        "POST",
        "/pauses",
        "Start nothing more: everywhere, of a user, in a project",
        lambda a: a.desk.pause(a.body.scope, a.body.reason),
        s.Paused,
        body=s.PauseBody,
    ),
    Route("DELETE", "/pauses/{scope}", "Go on after a pause", lambda a: a.desk.resume(a.parts["scope"]), s.Resumed),
)


def understood(shape: type[Struct], given: object, what: str, *, strict: bool) -> Any:  # noqa: ANN401 - of that shape
    """A query or a body as its shape has it; raises what is wrong with it."""
    try:
        return msgspec.convert(given, shape, strict=strict)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}") from None
