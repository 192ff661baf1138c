"""What goes over the socket: requests as they must be, answers as they are."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

#: As much as one answer holds.
MOST_ITEMS = 1000
#: The longest that an answer waits for something to happen, in seconds.
LONGEST_WAIT = 60.0

Limit = Annotated[int, Meta(ge=1, le=MOST_ITEMS)]
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="wait so many seconds for something new")]
Number = Annotated[int, Meta(ge=0)]
Status = Literal["queued", "claimed", "running", "completed", "failed", "cancelled", "lost"]
Time = Annotated[str, Meta(description="UTC, ISO 8601")]


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may follow the question mark."""


class NoQuery(Query, frozen=True):
    """Nothing may."""


class ListQuery(Query, frozen=True):
    """Which tasks."""

    status: Annotated[str, Meta(description="states, with commas between")] = ""
    user: str | None = None
    project: str | None = None
    limit: Limit = 100


class Statuses(Query, frozen=True):
    """The states of a list's query, taken apart."""

    status: list[Status]


class TaskQuery(Query, frozen=True):
    """How much of a task."""

    brief: Annotated[bool, Meta(description="without attempts and events")] = False


class WaitQuery(Query, frozen=True):
    """How long to wait."""

    wait: Wait = 0.0


class LogQuery(Query, frozen=True):
    """Which piece of an attempt's output."""

    attempt: Annotated[int, Meta(ge=1, description="of this attempt; of the latest, if none is named")] | None = None
    offset: Annotated[Number, Meta(description="the first byte")] = 0
    wait: Wait = 0.0


class EventQuery(Query, frozen=True):
    """Which events."""

    after: Annotated[Number, Meta(description="those with a higher number")] = 0
    last: Annotated[int, Meta(ge=0, le=MOST_ITEMS, description="begin with so many of the last ones")] | None = None
    limit: Limit = MOST_ITEMS
    wait: Wait = 0.0


class PastQuery(Query, frozen=True):
    """How many."""

    limit: Limit = 50


class LetGoQuery(Query, frozen=True):
    """How the command under the lock ended."""

    exit_code: int | None = None


# ---------------------------------------------------------------------- bodies


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body."""


class Nothing(Body, frozen=True):
    """An empty object, or no body at all."""


class TaskFile(Body, frozen=True):
    """A task file as it would be dropped: its name's ending says its format."""

    name: Annotated[str, Meta(min_length=1, max_length=4096)]
    content: str
    made: Annotated[bool, Meta(description="made of options: its problems are told without file and line")] = False


class Submission(Body, frozen=True):
    """Files that are taken in together, or none of them."""

    files: Annotated[list[TaskFile], Meta(min_length=1, max_length=MOST_ITEMS)]


class Changes(Body, frozen=True):
    """What to change of a waiting task."""

    priority: str | int | UnsetType = UNSET
    run_at: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    version: Annotated[Number, Meta(description="only if the task still has this version")] | UnsetType = UNSET


class PauseBody(Body, frozen=True):
    """What to pause, and why."""

    scope: Annotated[str, Meta(description="all, user:NAME or project:NAME")] = "all"
    reason: Annotated[str, Meta(max_length=500)] = ""


class ReleaseBody(Body, frozen=True):
    """How a lock is released."""

    force: Annotated[bool, Meta(description="you know that nothing of its holder is alive any more")] = False


# ---------------------------------------------------------------------- answers


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is answered."""


class ErrorBody(Answer, frozen=True):
    """What is wrong, in a word for programs and a sentence for people."""

    kind: str
    message: str
    exit_code: Annotated[int, Meta(description="what the command line would exit with")]


class Error(Answer, frozen=True):
    """Every answer that is an error."""

    error: ErrorBody


class Slots(Answer, frozen=True):
    """Places in which agents run."""

    max: int
    used: int
    available: int


class Capacity(Answer, frozen=True):
    """Slots and who uses them."""

    slots: Slots
    by_project: dict[str, int]
    by_user: dict[str, int]


class Active(Answer, frozen=True):
    """Who runs."""

    slots_used: int
    slots_max: int
    by_project: dict[str, int]
    by_user: dict[str, int]


class HeldLock(Answer, frozen=True):
    """A lock, in short."""

    user: str
    name: str
    lock_id: str
    task_id: str
    kind: str
    state: str
    acquired_at: Time
    acquired_by_pid: int
    expires_at: Time
    host: str
    token: int


class UserLocks(Answer, frozen=True):
    """The locks that are held."""

    active: int
    details: list[HeldLock]


class StatusAnswer(Answer, frozen=True):
    """The whole queue at one moment."""

    pending: dict[str, int]
    slots: Slots
    active: Active
    user_locks: UserLocks
    paused: list[str]
    finished: dict[str, int]
    #: Why nothing new is begun, if the disk has no room for it.
    no_room: str
    daemon: bool
    watchdog: bool


class TaskAnswer(Answer, frozen=True):
    """A task. What is optional is there for its user, for members of its project and for admins."""

    id: str
    status: Status
    user: str
    project: str
    priority: str
    created_at: Time
    run_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time
    attempt: int
    agent: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    command: list[str] | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    timeout: float | UnsetType | None = UNSET
    grace: float | UnsetType | None = UNSET
    idempotent: bool | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    artifacts: list[str] | UnsetType = UNSET
    artifact_patterns: list[str] | UnsetType = UNSET
    source: str | UnsetType = UNSET
    submitter: str | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    exit_code: int | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET
    held: float | UnsetType | None = UNSET
    cost: float | UnsetType | None = UNSET
    result: Any = UNSET
    log_tail: str | UnsetType | None = UNSET
    evidence: dict[str, Any] | UnsetType | None = UNSET
    cancel: str | UnsetType | None = UNSET
    seq: int | UnsetType = UNSET
    version: int | UnsetType = UNSET
    token: int | UnsetType = UNSET
    attempts: list[dict[str, Any]] | UnsetType = UNSET
    events: list[dict[str, Any]] | UnsetType = UNSET
    directory: str | UnsetType | None = UNSET
    run_dir: str | UnsetType | None = UNSET
    usage: dict[str, Any] | UnsetType | None = UNSET


class Tasks(Answer, frozen=True):
    """Tasks, newest first."""

    items: list[TaskAnswer]


class Submitted(Answer, frozen=True):
    """What became of a file."""

    file: str
    id: str
    spooled: Annotated[bool, Meta(description="the store is away: the file is taken in when it is back")]
    notes: list[str]
    warning: str


class Foretold(Struct, frozen=True, kw_only=True):
    """The task that a file would become, with where it would run and what would keep it from starting."""

    file: str
    notes: list[str]
    directory: str
    prospect: str
    user: str
    project: str
    agent: str
    priority: str


class SubmittedFiles(Answer, frozen=True):
    """What became of all files."""

    items: list[Submitted]


class ForetoldFiles(Answer, frozen=True):
    """What would become of all files."""

    items: list[Foretold]


class EndAnswer(Answer, frozen=True):
    """How a task has ended, or that it has not; details as of a task."""

    id: str
    status: Annotated[str, Meta(description="a task's state, or `spooled`: its file waits for the store")]
    is_over: bool
    reason: str | UnsetType = UNSET
    exit_code: int | UnsetType | None = UNSET
    error: str | UnsetType = UNSET
    result: Any = UNSET
    has_started: bool | UnsetType = UNSET


class ObstacleAnswer(Answer, frozen=True):
    """One thing that keeps a task from starting."""

    reason: str
    detail: str
    position: int | None


class WhyAnswer(Answer, frozen=True):
    """Why a task is not running."""

    task_id: str
    status: str
    summary: str
    obstacles: list[ObstacleAnswer]


class EventAnswer(Answer, frozen=True):
    """Something that happened; title and details as of its task."""

    seq: int
    timestamp: Time
    event: str
    status: str | None
    task_id: str | None
    user: str | None
    title: str
    detail: dict[str, Any]


class Events(Answer, frozen=True):
    """What happened, in order, and the number of the newest event there is."""

    items: list[EventAnswer]
    last: int


class Brief(Answer, frozen=True):
    """A task that was changed."""

    id: str
    user: str
    status: Status
    cancel: str | None
    was: str | UnsetType = UNSET


class Changed(Answer, frozen=True):
    """What a changed task asks for now."""

    id: str
    version: int
    priority: str
    run_at: Time | None
    title: str
    notes: list[str]


class LockAnswer(Answer, frozen=True):
    """A lock."""

    name: str
    user: str | None
    lock_id: str
    token: int
    task_id: str
    kind: str
    state: str
    acquired_at: Time
    expires_at: Time
    acquired_by_pid: int
    pid_start: int
    host: str
    boot_id: str
    evidence: dict[str, Any]


class ForeignLock(Answer, frozen=True):
    """A lock file that somebody else made."""

    user: str
    path: str
    kind: str
    acquired_by_pid: int | None
    maker: str


class Locks(Answer, frozen=True):
    """The locks that are held."""

    locks: list[LockAnswer]
    foreign: list[ForeignLock]


class PastLock(Answer, frozen=True):
    """A released lock."""

    name: str
    lock_id: str
    token: int
    task_id: str
    kind: str
    why: str
    evidence: dict[str, Any]
    acquired_at: Time
    released_at: Time


class PastLocks(Answer, frozen=True):
    """Released locks, newest first."""

    items: list[PastLock]


class Held(Answer, frozen=True):
    """The lock, held by the process that asked; none if it is not free."""

    lock: LockAnswer | None


class LetGo(Answer, frozen=True):
    """Whether it was held."""

    released: bool


class Released(Answer, frozen=True):
    """The lock that is free now, and what proves that it may be."""

    released: str
    evidence: dict[str, Any]


class PauseAnswer(Answer, frozen=True):
    """A pause."""

    scope: str
    by: str
    reason: str


class Pauses(Answer, frozen=True):
    """What is paused."""

    items: list[PauseAnswer]


class Paused(Answer, frozen=True):
    """What is paused now."""

    paused: str


class Resumed(Answer, frozen=True):
    """What goes on."""

    resumed: str
    was_paused: bool
