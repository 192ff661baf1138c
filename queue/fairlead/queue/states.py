"""The states of a task and the one table of legal ways between them."""

from enum import StrEnum

from fairlead.base.errors import RefusedError


class Status(StrEnum):
    """Where a task is."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


#: A lock is held for these.
ACTIVE = frozenset({Status.CLAIMED, Status.RUNNING})
#: These have ended; nothing runs any more.
FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.LOST})
#: These a person may send through the queue again.
RETRYABLE = frozenset({Status.FAILED, Status.CANCELLED, Status.LOST})

#: From each state, where a task may go. There is no other way.
LEGAL: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.CLAIMED, Status.FAILED, Status.CANCELLED}),
    # Back to queued only with proof that the agent never started.
    Status.CLAIMED: frozenset({Status.QUEUED, Status.RUNNING, *FINAL}),
    Status.RUNNING: FINAL,
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.QUEUED}),
    Status.CANCELLED: frozenset({Status.QUEUED}),
    Status.LOST: frozenset({Status.QUEUED}),
}


class IllegalTransitionError(RefusedError):
    """The task cannot go from its state to that one."""


def check_retry(task_id: str, status: Status) -> None:
    """Refuse to send a task through the queue again that has not gone wrong: a claim has a way back of its own."""
    if status not in RETRYABLE:
        wrong = ", ".join(sorted(RETRYABLE))
        raise IllegalTransitionError(f"task {task_id} is {status} and cannot be retried; only these can: {wrong}.")


def check_transition(task_id: str, before: Status, after: Status) -> None:
    """Refuse a way that is not in the table."""
    if after not in LEGAL[before]:
        ways = ", ".join(sorted(LEGAL[before])) or "nothing: it is finished for good"
        raise IllegalTransitionError(
            f"task {task_id} is {before} and cannot become {after}; from {before} it can become {ways}."
        )
