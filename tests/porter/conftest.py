"""A porter as a process, with spools of real users."""

from collections.abc import Iterator

import pytest
from tests.support.porters import USERS, RealPorter, real_porter


@pytest.fixture(scope="module")
def porter() -> Iterator[RealPorter]:
    """A porter for three users, for tests that leave it as they found it."""
    with real_porter(*USERS) as porter:
        yield porter
