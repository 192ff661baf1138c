"""The records: what was asked, what became of it, and every attempt and event on the way."""

from collections.abc import Collection
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from fairlead.base.principals import is_among
from fairlead.queue.states import Status

#: From most to least urgent; a task's rank is its position here.
PRIORITIES = ("critical", "high", "medium", "low")
Rank = Annotated[int, Meta(ge=0, le=3)]


class Spec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the submitter asked for, validated and with every default filled in."""

    user: str
    project: str
    agent: str
    #: The kind of task; policies are per action.
    action: str
    priority: Rank = 2
    title: str = ""
    prompt: str = ""
    #: Runs instead of the agent's template when given.
    command: tuple[str, ...] = ()
    payload: dict[str, Any] = field(default_factory=dict)
    #: Wall milliseconds before which it must not start.
    run_at: int | None = None
    #: Seconds; None means the configured limit.
    timeout: float | None = None
    grace: float | None = None
    #: A lost attempt may be run again without asking.
    idempotent: bool = False
    env: dict[str, str] = field(default_factory=dict)
    #: Patterns below the working directory.
    artifacts: tuple[str, ...] = ()
    #: The dropped file's name, for people.
    source: str = ""
    #: Who handed it in, by the system's word: in the system's instance the user, else whoever made the file.
    submitter: str = ""


#: The reason of an attempt whose agent provably never started.
NEVER_STARTED = "never_started"


def is_express(user: str, priority: Rank, operators: Collection[str]) -> bool:
    """Whether a task goes before everybody's: it is critical, and an operator's."""
    return PRIORITIES[priority] == "critical" and is_among(user, operators)


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an attempt ended: a status, and what a person wants to know of it."""

    status: Status
    #: A word for machines: exit, signal, timeout, hang, cancelled, never_started, supervisor_died, reboot, …
    reason: str
    #: A sentence for people; empty for a plain success.
    error: str = ""
    exit_code: int | None = None
    signal: str | None = None
    finished_at: int = 0
    #: Seconds the lock was held, by the clock that does not jump.
    held: float = 0.0
    cost: float | None = None
    result: Any = None
    artifacts: tuple[str, ...] = ()
    log_tail: str = ""
    #: What proved that nothing of the run is alive any more.
    evidence: dict[str, Any] = field(default_factory=dict)


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One time that a task was claimed."""

    number: int
    token: int
    claimed_at: int
    started_at: int | None = None
    finished_at: int | None = None
    status: Status | None = None
    reason: str = ""
    error: str = ""
    exit_code: int | None = None
    signal: str | None = None
    host: str = ""
    run_dir: str = ""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a task."""

    seq: int = 0
    at: int
    event: str
    status: Status | None = None
    task_id: str | None = None
    user: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as the store knows it."""

    id: str
    seq: int
    spec: Spec
    status: Status
    version: int
    created_at: int
    updated_at: int
    started_at: int | None = None
    finished_at: int | None = None
    attempt: int = 0
    token: int = 0
    outcome: Outcome | None = None
    cancel: str | None = None
    archived: bool = False

    @property
    def priority(self) -> str:
        """The priority's name."""
        return PRIORITIES[self.spec.priority]


def about(task: Task) -> dict[str, object]:
    """What every line of the log about a task says, by which its story is found."""
    return {"task": task.id, "user": task.spec.user, "attempt": task.attempt, "project": task.spec.project}


class Changes(Struct, frozen=True, kw_only=True):
    """What a person may change of a waiting task; unset fields stay."""

    priority: Rank | UnsetType = UNSET
    run_at: int | UnsetType | None = UNSET
    title: str | UnsetType = UNSET
    #: Whether it goes before everybody's from now on: whoever may say so decides it with the priority.
    express: bool | UnsetType = UNSET
