"""A seed makes the same choices again: whom to kill, what to run."""

from itertools import islice

from tests.proof.load import Tasks
from tests.proof.plan import plan
from tests.proof.processes import Role


def test_a_seed_repeats_the_kills() -> None:
    """The same seed gives the same row of kills, another one another row."""
    first, again, other = (list(islice(plan(seed, 0.3), 200)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_everybody_is_killed() -> None:
    """A row of kills leaves no kind of process out."""
    assert {step.role for step in islice(plan(1, 0.3), 200)} == set(Role)


def test_a_seed_repeats_the_tasks() -> None:
    """The same seed gives the same tasks, by the same users, entering in the same way."""
    first, again = Tasks(1, 20), Tasks(1, 20)
    assert [first.next() for _ in range(200)] == [again.next() for _ in range(200)]
