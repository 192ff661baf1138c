"""A porter as a process, with spools of real users."""

from collections.abc import Iterator

import pytest
from tests.support.porters import USERS, RealPorter, real_porter


@pytest.fixture
def porter() -> Iterator[RealPorter]:
    """A porter for three users."""
    with real_porter(*USERS) as porter:
        yield porter
