"""Who is next: a pure function of a snapshot and the time; docs/fair-share.md says it in words.

Two questions are answered from the same snapshot by the same rules: `decide` says which tasks start now,
`explain` says of one queued task what keeps it from starting.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from fairlead.base.clock import moment
from fairlead.base.durations import show_duration
from fairlead.queue.task import PRIORITIES


class Head(Struct, frozen=True, kw_only=True):
    """The first due task of one priority in one lane: the only one of them that can be next."""

    task_id: str
    rank: int
    #: Where it stands in the line of its priority.
    place: int
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
    NO_DAEMON = "no_daemon"
    NO_ROOM = "no_room"


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
    #: What is said of each paused scope; a sentence that knows no more where nothing is.
    pauses: dict[str, str] = {}


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


class Obstacle(Struct, frozen=True, kw_only=True):
    """One thing that keeps a task from starting now."""

    reason: Reason
    #: A sentence for people.
    detail: str
    #: How many users are served before this task's user; 0 is the next.
    position: int | None = None


#: What is said of a hold that says nothing itself.
_HOLDS = {
    Reason.USER_LOCKED: "another task of {user} is running",
    Reason.FOREIGN_LOCK: "somebody else holds the lock of {user}",
    Reason.QUARANTINED: "the lock of {user} is quarantined until an operator frees it",
    Reason.PAUSED: "{user} is paused",
}


class _Turn(NamedTuple):
    """What a user, or one lane, would start with, and where that stands in the line."""

    #: Smallest first: express by arrival, then by standing, then whoever has waited longest.
    order: tuple[int, float, int, int, str]
    user: str
    project: str
    head: Head


def decide(snapshot: Snapshot) -> Decision:
    """Who starts now, in order, and why everybody else does not."""
    if snapshot.paused:
        return Decision(picks=(), passed=tuple(_all_paused(snapshot.candidates)))
    turns: list[_Turn] = []
    passed: list[Passed] = []
    for candidate in snapshot.candidates:
        turn = _turn(candidate, snapshot.ageing)
        if turn is None or candidate.hold is not None:
            passed.append(_set_aside(candidate))
        else:
            turns.append(turn)
    turns.sort()
    free = max(0, snapshot.free_slots)
    picks = tuple(Pick(task_id=t.head.task_id, user=t.user, project=t.project) for t in turns[:free])
    return Decision(picks=picks, passed=(*_in_line(turns[free:], free), *passed))


def explain(snapshot: Snapshot, user: str, project: str, head: Head) -> tuple[Obstacle, ...]:
    """All that keeps one queued task from starting, most decisive first; nothing if it starts now.

    `head` describes the task itself, whether or not it is at the head of anything; a `since` that is
    still to come means that it is not due. A user who is not in the snapshot is behind all who are.
    """
    decision = decide(snapshot)
    if any(pick.task_id == head.task_id for pick in decision.picks):
        return ()
    candidate = next((c for c in snapshot.candidates if c.user == user), None)
    obstacles = [*_too_early(snapshot, head), *_stopped(snapshot, candidate, project)]
    if head.since <= snapshot.now:
        obstacles += _own_first(snapshot, candidate, project, head)
        obstacles += _others_first(snapshot, decision, user)
    # Nothing found: the task is due, but the snapshot does not know its project.
    return tuple(obstacles or _as_decided(decision, user))


def _turn(candidate: Candidate, ageing: float) -> _Turn | None:
    """What this user would start with: an express task, else the lane that has had least."""
    turns = [_lane_turn(candidate, lane, ageing) for lane in candidate.lanes if lane.heads and not lane.paused]
    if not turns:
        return None
    best = min(turns)
    # The lanes were compared among themselves; the line compares the user's own standing.
    return best._replace(order=_order(candidate.standing, best.head, candidate.user))


def _lane_turn(candidate: Candidate, lane: Lane, ageing: float) -> _Turn:
    head = _first(lane.heads, ageing)
    return _Turn(_order(lane.standing, head, lane.project), candidate.user, lane.project, head)


def _order(standing: float, head: Head, name: str) -> tuple[int, float, int, int, str]:
    if head.express:
        return (0, 0.0, 0, head.place, name)
    return (1, standing, head.since, head.place, name)


def _first(heads: Iterable[Head], ageing: float) -> Head:
    """The head that goes first in its lane: each step of priority is worth `ageing` seconds of waiting."""
    step = ageing * 1000.0
    return min(heads, key=lambda head: (_urgency(head, step), head.rank, head.place))


def _urgency(head: Head, step: float) -> tuple[int, float]:
    return (0, head.place) if head.express else (1, head.since + head.rank * step)


def _all_paused(candidates: Iterable[Candidate]) -> Iterator[Passed]:
    for candidate in candidates:
        yield Passed(user=candidate.user, reason=Reason.PAUSED, detail="all starting is paused")


def _set_aside(candidate: Candidate) -> Passed:
    """Why a user is not even in the line."""
    user, hold = candidate.user, candidate.hold
    if hold is not None:
        return Passed(user=user, reason=hold.reason, detail=_hold_detail(user, hold))
    if any(lane.heads for lane in candidate.lanes):
        return Passed(user=user, reason=Reason.PAUSED, detail="every project with due tasks is paused")
    return Passed(user=user, reason=Reason.NOT_DUE, detail="no task is due")


def _hold_detail(user: str, hold: Hold) -> str:
    return hold.detail or _HOLDS.get(hold.reason, "the tasks of {user} are held").format(user=user)


def _in_line(turns: Sequence[_Turn], free: int) -> Iterator[Passed]:
    reason, why = (Reason.BEHIND, "") if free else (Reason.NO_SLOT, "no slot is free; ")
    for position, turn in enumerate(turns):
        yield Passed(user=turn.user, reason=reason, detail=why + _place(position), position=position)


def _place(position: int) -> str:
    if position == 0:
        return "next as soon as a slot is free"
    return f"{position} {'user is' if position == 1 else 'users are'} served first"


def _too_early(snapshot: Snapshot, head: Head) -> Iterator[Obstacle]:
    if head.since > snapshot.now:
        wait = show_duration((head.since - snapshot.now) / 1000.0)
        yield Obstacle(reason=Reason.NOT_DUE, detail=f"it is due in {wait}, at {moment(head.since)}")


def _stopped(snapshot: Snapshot, candidate: Candidate | None, project: str) -> Iterator[Obstacle]:
    """What an operator, or a lock, has stopped."""
    if snapshot.paused:
        yield Obstacle(reason=Reason.PAUSED, detail=snapshot.pauses.get("all", "all starting is paused"))
    if candidate is None:
        return
    if any(lane.paused for lane in candidate.lanes if lane.project == project):
        detail = snapshot.pauses.get(f"project:{project}", f"project {project} is paused")
        yield Obstacle(reason=Reason.PAUSED, detail=detail)
    if candidate.hold is not None:
        detail = _hold_detail(candidate.user, candidate.hold)
        yield Obstacle(reason=candidate.hold.reason, detail=detail)


def _own_first(snapshot: Snapshot, candidate: Candidate | None, project: str, head: Head) -> Iterator[Obstacle]:
    """Which task of the same user goes before this one: of its own project, or of another."""
    lanes = candidate.lanes if candidate else ()
    for lane in lanes:
        if lane.project == project and lane.heads:
            first = _first(lane.heads, snapshot.ageing)
            if first.task_id != head.task_id:
                yield Obstacle(reason=Reason.LOWER_PRIORITY, detail=_before(first, head, snapshot.now))
    turn = _turn(candidate, snapshot.ageing) if candidate else None
    if turn is not None and turn.project != project:
        yield Obstacle(reason=Reason.LOWER_PRIORITY, detail=_other_project(turn))


def _before(first: Head, head: Head, now: int) -> str:
    """Why one task of a project goes before another."""
    if first.express:
        why = "an operator made it critical"
    elif first.rank < head.rank:
        why = f"its priority is {PRIORITIES[first.rank]}"
    elif first.rank > head.rank:
        why = f"it has waited {show_duration((now - first.since) / 1000.0)}"
    else:
        why = "it came earlier"
    return f"task {first.task_id} of the same project goes first: {why}"


def _other_project(turn: _Turn) -> str:
    why = "an operator made it critical" if turn.head.express else "that project has had less time"
    return f"task {turn.head.task_id} of project {turn.project} goes first: {why}"


def _others_first(snapshot: Snapshot, decision: Decision, user: str) -> Iterator[Obstacle]:
    """What other users have to do with it."""
    full = snapshot.free_slots <= 0
    position = next((passed.position for passed in decision.passed if passed.user == user), None)
    if full:
        yield Obstacle(reason=Reason.NO_SLOT, detail="no slot is free", position=position)
    if all(candidate.user != user for candidate in snapshot.candidates):
        yield Obstacle(reason=Reason.BEHIND, detail="everybody who was looked at is served first")
    elif position is not None and not (full and position == 0):
        yield Obstacle(reason=Reason.BEHIND, detail=_place(position), position=position)


def _as_decided(decision: Decision, user: str) -> Iterator[Obstacle]:
    """The decision's own word on this user."""
    for passed in decision.passed:
        if passed.user == user:
            yield Obstacle(reason=passed.reason, detail=passed.detail, position=passed.position)
