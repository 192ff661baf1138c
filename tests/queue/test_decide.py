"""Decisions: who starts, in which order, and why the others do not."""

import sys
from collections.abc import Callable
from math import log2
from random import Random
from time import perf_counter
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.queue.decide import (
    Candidate,
    Decision,
    Head,
    Hold,
    Lane,
    Obstacle,
    Reason,
    Snapshot,
    decide,
    explain,
)

NOW = 1_800_000_000_000
HOUR = 3_600_000
CRITICAL, HIGH, MEDIUM, LOW = range(4)


def head(seq: int, rank: int = MEDIUM, *, waited: int = 0, express: bool = False) -> Head:
    return Head(task_id=f"t{seq}", rank=rank, place=seq, since=NOW - waited, express=express)


def lane(*heads: Head, project: str = "p", standing: float = 0.0, paused: bool = False) -> Lane:
    return Lane(project=project, standing=standing, heads=heads, paused=paused)


def user(name: str, standing: float, *lanes: Lane, hold: Hold | None = None) -> Candidate:
    return Candidate(user=name, standing=standing, lanes=lanes, hold=hold)


def snapshot(*candidates: Candidate, free: int = 1, paused: bool = False) -> Snapshot:
    return Snapshot(now=NOW, free_slots=free, ageing=3600.0, candidates=candidates, paused=paused)


def picked(decision: Decision) -> list[str]:
    return [pick.task_id for pick in decision.picks]


def reasons(decision: Decision) -> dict[str, Reason]:
    return {passed.user: passed.reason for passed in decision.passed}


def positions(decision: Decision) -> dict[str, int | None]:
    return {passed.user: passed.position for passed in decision.passed}


def test_the_smallest_standing_starts() -> None:
    """Whoever has had least is first, whatever the priority of the others' tasks."""
    decision = decide(snapshot(user("ann", 2.0, lane(head(1, CRITICAL))), user("bob", 1.0, lane(head(2, LOW))), free=1))
    assert picked(decision) == ["t2"]
    assert reasons(decision) == {"ann": Reason.BEHIND}
    assert positions(decision) == {"ann": 0}


def test_picks_come_in_the_order_of_their_start() -> None:
    """Several free slots go to several users, in line; a user gets one of them."""
    decision = decide(
        snapshot(
            user("ann", 3.0, lane(head(1), head(2, HIGH))),
            user("bob", 1.0, lane(head(3))),
            user("cid", 2.0, lane(head(4))),
            free=5,
        )
    )
    assert picked(decision) == ["t3", "t4", "t2"]
    assert decision.passed == ()


def test_equals_start_by_waiting_then_by_sequence() -> None:
    """Among equals the one who has waited longest is first, then the earlier task, then the name."""
    decision = decide(
        snapshot(
            user("ann", 1.0, lane(head(5))),
            user("bob", 1.0, lane(head(4))),
            user("cid", 1.0, lane(head(9, waited=1))),
            user("eve", 1.0, lane(head(7))),
            user("dan", 1.0, lane(head(7))),
            free=5,
        )
    )
    assert [pick.user for pick in decision.picks] == ["cid", "bob", "ann", "dan", "eve"]


def test_a_locked_user_is_skipped() -> None:
    """A user with a lock is passed over with the reason, and the next one starts."""
    locked = Hold(reason=Reason.USER_LOCKED, detail="task t0 is running")
    decision = decide(snapshot(user("ann", 1.0, lane(head(1)), hold=locked), user("bob", 2.0, lane(head(2)))))
    assert picked(decision) == ["t2"]
    assert reasons(decision) == {"ann": Reason.USER_LOCKED}
    assert decision.passed[0].detail == "task t0 is running"


def test_every_hold_has_its_sentence() -> None:
    """A hold that says nothing itself is explained, with the user's name in it."""
    for reason in (Reason.FOREIGN_LOCK, Reason.QUARANTINED, Reason.PAUSED, Reason.NO_SLOT):
        decision = decide(snapshot(user("ann", 1.0, lane(head(1)), hold=Hold(reason=reason))))
        assert decision.passed[0].reason is reason
        assert "ann" in decision.passed[0].detail


def test_without_a_slot_everybody_has_a_place() -> None:
    """With no slot free, also after the limit was lowered, the reason is the slot, and the place is told."""
    for free in (0, -2):
        decision = decide(snapshot(user("ann", 2.0, lane(head(1))), user("bob", 1.0, lane(head(2))), free=free))
        assert picked(decision) == []
        assert reasons(decision) == {"ann": Reason.NO_SLOT, "bob": Reason.NO_SLOT}
        assert positions(decision) == {"ann": 1, "bob": 0}


def test_an_express_task_goes_before_everybody() -> None:
    """An operator's critical task jumps the line; two of them go by sequence, standing aside."""
    decision = decide(
        snapshot(
            user("ann", 1.0, lane(head(1, waited=9 * HOUR))),
            user("bob", 8.0, lane(head(5, CRITICAL, express=True), head(2, CRITICAL, waited=9 * HOUR))),
            user("cid", 9.0, lane(head(3), project="a"), lane(head(4, CRITICAL, express=True), standing=5.0)),
            free=3,
        )
    )
    assert picked(decision) == ["t4", "t5", "t1"]


def test_express_does_not_open_locks_or_pauses() -> None:
    """A lock or a pause holds an express task too."""
    express = head(1, CRITICAL, express=True)
    hold = Hold(reason=Reason.USER_LOCKED)
    decision = decide(
        snapshot(user("ann", 1.0, lane(express), hold=hold), user("bob", 1.0, lane(express, paused=True)), free=2)
    )
    assert reasons(decision) == {"ann": Reason.USER_LOCKED, "bob": Reason.PAUSED}


def test_a_paused_queue_starts_nothing() -> None:
    """A pause of everything passes everybody with that reason."""
    decision = decide(snapshot(user("ann", 1.0, lane(head(1))), paused=True))
    assert picked(decision) == []
    assert reasons(decision) == {"ann": Reason.PAUSED}


def test_a_paused_project_is_skipped() -> None:
    """Another project of the same user starts instead; with none left the user is paused."""
    paused = lane(head(1), project="a", paused=True)
    assert picked(decide(snapshot(user("ann", 1.0, paused, lane(head(2), standing=9.0))))) == ["t2"]
    decision = decide(snapshot(user("ann", 1.0, paused)))
    assert reasons(decision) == {"ann": Reason.PAUSED}


def test_a_user_without_due_tasks_is_not_due() -> None:
    """A candidate that has nothing to start is passed, not picked."""
    assert reasons(decide(snapshot(user("ann", 1.0, lane())))) == {"ann": Reason.NOT_DUE}


def test_projects_of_a_user_share_too() -> None:
    """Within a user the project that has had least is first; among equals the one that waited longest."""
    less = user("ann", 1.0, lane(head(1), project="a", standing=2.0), lane(head(2), project="b", standing=1.0))
    assert picked(decide(snapshot(less))) == ["t2"]
    equal = user("ann", 1.0, lane(head(1), project="a"), lane(head(2, waited=1), project="b"))
    assert picked(decide(snapshot(equal))) == ["t2"]


def test_priority_orders_a_project() -> None:
    """Of tasks that have waited equally long the most urgent is first."""
    decision = decide(snapshot(user("ann", 1.0, lane(head(1, LOW), head(2), head(3, HIGH)))))
    assert picked(decision) == ["t3"]


def test_waiting_is_worth_priority() -> None:
    """A step of priority is worth `ageing` seconds: at a tie the priority wins, a moment later the age."""
    for waited, first in ((HOUR, "t2"), (HOUR + 1, "t1")):
        decision = decide(snapshot(user("ann", 1.0, lane(head(1, MEDIUM, waited=waited), head(2, HIGH)))))
        assert picked(decision) == [first]


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer slows every line")
def test_twenty_candidates_take_no_time() -> None:
    """A usual decision is far below 0.2 ms."""
    projects = [lane(*(head(9 * i + r, r) for r in range(4)), project=f"p{i}") for i in range(2)]
    usual = snapshot(*(user(f"u{n}", float(n % 7), *projects) for n in range(20)), free=4)
    assert best_of(50, lambda: decide(usual)) < 0.0002


def best_of(times: int, action: Callable[[], object]) -> float:
    def once() -> float:
        begin = perf_counter()
        action()
        return perf_counter() - begin

    return min(once() for _ in range(times))


class Counted(float):
    """A standing that counts how often it is compared."""

    compared: ClassVar[int] = 0

    def __lt__(self, other: float) -> bool:
        Counted.compared += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, Counted) and float(self) == float(other)

    __hash__ = float.__hash__


def test_the_work_grows_as_sorting_does() -> None:
    """Ten thousand candidates need no more comparisons than sorting them."""
    count = 10_000
    candidates = [user(f"u{n}", Counted(n * 7919 % count), lane(head(n))) for n in range(count)]
    Counted.compared = 0
    decide(snapshot(*candidates, free=3))
    # One comparison of nested tuples asks a float up to three times: equal, equal, less.
    assert 0 < Counted.compared < 3 * count * log2(count)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    seqs = iter(range(1000))

    def some_head(rank: int) -> Head:
        waited = draw(st.sampled_from([0, 1, HOUR, 3 * HOUR]))
        express = rank == CRITICAL and draw(st.booleans())
        return head(next(seqs), rank, waited=waited, express=express)

    def some_lane(name: str) -> Lane:
        ranks = draw(st.sets(st.integers(0, 3), max_size=3))
        heads = [some_head(rank) for rank in sorted(ranks)]
        return lane(*heads, project=name, standing=draw(STANDINGS), paused=draw(RARELY))

    def some_user(name: str) -> Candidate:
        lanes = [some_lane(f"p{n}") for n in range(draw(st.integers(0, 2)))]
        hold = Hold(reason=Reason.USER_LOCKED) if draw(RARELY) else None
        return user(name, draw(STANDINGS), *lanes, hold=hold)

    users = [some_user(f"u{n}") for n in range(draw(st.integers(0, 4)))]
    return snapshot(*users, free=draw(st.integers(-1, 3)), paused=draw(RARELY))


STANDINGS = st.sampled_from([0.0, 1.0, 2.0])
RARELY = st.integers(0, 5).map(lambda n: n == 5)


def queued(state: Snapshot) -> list[tuple[str, str, Head]]:
    return [(c.user, each.project, task) for c in state.candidates for each in c.lanes for task in each.heads]


@given(snapshots())
def test_what_is_picked_has_no_obstacle_and_the_rest_has_one(state: Snapshot) -> None:
    """`why` and the decision never contradict each other."""
    picks = set(picked(decide(state)))
    for name, project, task in queued(state):
        assert (not explain(state, name, project, task)) == (task.task_id in picks)


@given(snapshots())
def test_everybody_is_picked_or_passed_once(state: Snapshot) -> None:
    """Nobody is forgotten, nobody starts twice, no more start than slots are free."""
    decision = decide(state)
    names = [*(pick.user for pick in decision.picks), *(passed.user for passed in decision.passed)]
    assert sorted(names) == sorted(candidate.user for candidate in state.candidates)
    assert len(decision.picks) <= max(0, state.free_slots)


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_question_does_not_matter(state: Snapshot, random: Random) -> None:
    """The same users in another order get the same decision: it depends on nothing else."""
    shuffled = list(state.candidates)
    random.shuffle(shuffled)
    other = snapshot(*shuffled, free=state.free_slots, paused=state.paused)
    assert decide(other).picks == decide(state).picks
    assert positions(decide(other)) == positions(decide(state))


def why(state: Snapshot, name: str, task: Head, project: str = "p") -> list[Obstacle]:
    return list(explain(state, name, project, task))


def test_why_says_nothing_of_a_task_that_starts() -> None:
    """A task that starts now has no obstacle."""
    assert why(snapshot(user("ann", 1.0, lane(head(1)))), "ann", head(1)) == []


def test_why_a_task_is_not_due() -> None:
    """The time is told, and pauses and locks that will matter then, but not today's line."""
    later = head(2, waited=-2 * HOUR)
    hold = Hold(reason=Reason.FOREIGN_LOCK, detail="locks/user_ann.lock was made by somebody else")
    state = snapshot(user("ann", 1.0, lane(head(1), paused=True), hold=hold), free=0, paused=True)
    answer = why(state, "ann", later)
    assert [o.reason for o in answer] == [Reason.NOT_DUE, Reason.PAUSED, Reason.PAUSED, Reason.FOREIGN_LOCK]
    assert answer[0].detail == "it is due in 2h, at 2027-01-15T10:00:00Z"
    assert answer[1].detail == "all starting is paused"
    assert answer[2].detail == "project p is paused"
    assert answer[3].detail == "locks/user_ann.lock was made by somebody else"


def test_why_everything_at_once() -> None:
    """A task can be held by its user's lock, by its own project, by the slots and by others."""
    state = snapshot(
        user("ann", 2.0, lane(head(1, HIGH), head(2)), hold=Hold(reason=Reason.USER_LOCKED)),
        user("bob", 1.0, lane(head(3))),
        free=0,
    )
    answer = why(state, "ann", head(2))
    assert [o.reason for o in answer] == [Reason.USER_LOCKED, Reason.LOWER_PRIORITY, Reason.NO_SLOT]
    assert answer[0].detail == "another task of ann is running"


def test_why_another_task_of_the_project_goes_first() -> None:
    """Which one, and for what: its priority, its age, its arrival, an operator's word."""
    cases = [
        (head(1, HIGH), head(2, LOW), "its priority is high"),
        (head(1, LOW, waited=4 * HOUR), head(2, HIGH), "it has waited 4h"),
        (head(1), head(2), "it came earlier"),
        (head(1, CRITICAL, express=True), head(2), "an operator made it critical"),
    ]
    for first, task, reason in cases:
        heads = (first,) if first.rank == task.rank else (first, task)
        (obstacle,) = why(snapshot(user("ann", 1.0, lane(*heads))), "ann", task)
        assert obstacle.reason is Reason.LOWER_PRIORITY
        assert obstacle.detail == f"task t1 of the same project goes first: {reason}"


def test_why_another_project_goes_first() -> None:
    """The other project's task is named, and whether it is share or an operator's word."""
    for express, reason in (
        (False, "that project has had less time"),
        (True, "an operator made it critical"),
    ):
        other = lane(head(1, CRITICAL, express=express), project="q", standing=-1.0)
        (obstacle,) = why(snapshot(user("ann", 1.0, lane(head(2)), other)), "ann", head(2))
        assert obstacle.reason is Reason.LOWER_PRIORITY
        assert obstacle.detail == f"task t1 of project q goes first: {reason}"


def test_why_others_go_first() -> None:
    """The place in the line is told in words and as a number."""
    line = [user(f"u{n}", float(n), lane(head(n))) for n in range(4)]
    assert why(snapshot(*line), "u1", head(1)) == [
        Obstacle(reason=Reason.BEHIND, detail="next as soon as a slot is free", position=0)
    ]
    assert why(snapshot(*line), "u2", head(2))[0].detail == "1 user is served first"
    assert why(snapshot(*line), "u3", head(3))[0].detail == "2 users are served first"


def test_why_there_is_no_slot() -> None:
    """Without a slot the next one lacks only that, and the others are told their place as well."""
    line = [user(f"u{n}", float(n), lane(head(n))) for n in range(2)]
    no_slot = Obstacle(reason=Reason.NO_SLOT, detail="no slot is free", position=0)
    assert why(snapshot(*line, free=0), "u0", head(0)) == [no_slot]
    assert [o.reason for o in why(snapshot(*line, free=0), "u1", head(1))] == [Reason.NO_SLOT, Reason.BEHIND]


def test_why_of_a_user_out_of_sight() -> None:
    """A user whom the snapshot leaves out stands behind all who are in it."""
    (obstacle,) = why(snapshot(user("ann", 1.0, lane(head(1)))), "zoe", head(9))
    assert obstacle.reason is Reason.BEHIND
    assert obstacle.detail == "everybody who was looked at is served first"


def test_why_of_a_project_out_of_sight() -> None:
    """A due task whose project the snapshot leaves out gets the decision's word on its user."""
    (obstacle,) = why(snapshot(user("zoe", 1.0), user("ann", 1.0)), "ann", head(9))
    assert obstacle.reason is Reason.NOT_DUE
