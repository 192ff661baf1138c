"""Who is next: a pure function of a snapshot and the time. (docs/fair-share.md says it in words.)"""

from enum import StrEnum

from msgspec import Struct


class Head(Struct, frozen=True, kw_only=True):
    """The first due task of one priority in one lane: the only one of them that can be next."""

    task_id: str
    rank: int
    seq: int
    #: Wall milliseconds since when it could have run.
    since: int
    #: An operator's critical task: goes before everybody's.
    express: bool = False


class Lane(Struct, frozen=True, kw_only=True):
    """One project of one user."""

    project: str
    standing: float
    heads: tuple[Head, ...]
    paused: bool = False


class Reason(StrEnum):
    """Why a user, or a task, is not next."""

    NOT_DUE = "not_due"
    USER_LOCKED = "user_locked"
    FOREIGN_LOCK = "foreign_lock"
    QUARANTINED = "quarantined"
    NO_SLOT = "no_slot"
    PAUSED = "paused"
    BEHIND = "behind"
    LOWER_PRIORITY = "lower_priority"


class Hold(Struct, frozen=True, kw_only=True):
    """What keeps all tasks of one user from starting."""

    reason: Reason
    detail: str = ""


class Candidate(Struct, frozen=True, kw_only=True):
    """A user with due tasks."""

    user: str
    standing: float
    lanes: tuple[Lane, ...]
    hold: Hold | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that a decision depends on."""

    #: Wall milliseconds.
    now: int
    free_slots: int
    #: Seconds of waiting that are worth one step of priority.
    ageing: float
    candidates: tuple[Candidate, ...]
    paused: bool = False


class Pick(Struct, frozen=True, kw_only=True):
    """A task that starts now."""

    task_id: str
    user: str
    project: str


class Passed(Struct, frozen=True, kw_only=True):
    """A user who does not start now, and why."""

    user: str
    reason: Reason
    detail: str = ""
    #: How many users are served before this one; 0 is the next.
    position: int | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """Who starts, in order, and why everybody else does not."""

    picks: tuple[Pick, ...]
    passed: tuple[Passed, ...]
