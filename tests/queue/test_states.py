"""The states and the one table of ways between them."""

import pytest

from fairlead.base.errors import RefusedError
from fairlead.queue.states import (
    ACTIVE,
    FINAL,
    LEGAL,
    RETRYABLE,
    IllegalTransitionError,
    Status,
    check_retry,
    check_transition,
)

#: Written down once more, so that a change of the table is a decision.
WAYS = {
    (Status.QUEUED, Status.CLAIMED),
    (Status.QUEUED, Status.FAILED),
    (Status.QUEUED, Status.CANCELLED),
    (Status.CLAIMED, Status.QUEUED),
    (Status.CLAIMED, Status.RUNNING),
    (Status.CLAIMED, Status.COMPLETED),
    (Status.CLAIMED, Status.FAILED),
    (Status.CLAIMED, Status.CANCELLED),
    (Status.CLAIMED, Status.LOST),
    (Status.RUNNING, Status.COMPLETED),
    (Status.RUNNING, Status.FAILED),
    (Status.RUNNING, Status.CANCELLED),
    (Status.RUNNING, Status.LOST),
    (Status.FAILED, Status.QUEUED),
    (Status.CANCELLED, Status.QUEUED),
    (Status.LOST, Status.QUEUED),
}


@pytest.mark.parametrize("before", sorted(Status))
@pytest.mark.parametrize("after", sorted(Status))
def test_a_way_is_in_the_table_or_refused(before: Status, after: Status) -> None:
    """Every pair of states is either one of the sixteen ways or refused by name."""
    if (before, after) in WAYS:
        check_transition("t", before, after)
    else:
        with pytest.raises(IllegalTransitionError, match=f"task t is {before} and cannot become {after}"):
            check_transition("t", before, after)


def test_a_refusal_says_what_is_possible() -> None:
    """The message names the ways that there are, or says that there is none."""
    with pytest.raises(RefusedError, match="from running it can become cancelled, completed, failed, lost"):
        check_transition("t", Status.RUNNING, Status.QUEUED)
    with pytest.raises(RefusedError, match="nothing: it is finished for good"):
        check_transition("t", Status.COMPLETED, Status.QUEUED)


def test_the_sets_divide_the_states() -> None:
    """A task waits, is active, or has ended; the table knows every state."""
    assert {Status.QUEUED} | ACTIVE | FINAL == set(Status) == set(LEGAL)
    assert not ACTIVE & FINAL
    assert {before for before in FINAL if Status.QUEUED in LEGAL[before]} == RETRYABLE


def test_a_success_is_never_run_again() -> None:
    """From completed no way leads anywhere."""
    assert LEGAL[Status.COMPLETED] == frozenset()
    assert Status.COMPLETED not in RETRYABLE


@pytest.mark.parametrize("status", sorted(Status))
def test_only_what_went_wrong_is_retried(status: Status) -> None:
    """A claim has a way back into the queue, but not by a retry."""
    if status in {Status.FAILED, Status.CANCELLED, Status.LOST}:
        check_retry("t", status)
    else:
        with pytest.raises(IllegalTransitionError, match="only these can: cancelled, failed, lost"):
            check_retry("t", status)
