"""Errors: what a person gets to see."""

import pytest

from fairlead.base.errors import FairleadError, NotFoundError, RefusedError, UnavailableError, UsageError


@pytest.mark.parametrize(
    ("error", "code"),
    [(FairleadError, 1), (UsageError, 2), (NotFoundError, 4), (RefusedError, 5), (UnavailableError, 6)],
)
def test_every_kind_has_its_sentence_and_its_exit_code(error: type[FairleadError], code: int) -> None:
    """Without a message the class's own sentence speaks; scripts tell the kinds apart."""
    assert str(error()) == error.__doc__
    assert str(error("Another sentence.")) == "Another sentence."
    assert error.exit_code == code
