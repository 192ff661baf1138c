"""Every test here has an instance of its own, with somebody who answers at its socket."""

from collections.abc import Iterator

import pytest
from tests.support.instance import Home, home
from tests.web.people import System, system_instance

__all__ = ["home"]


@pytest.fixture
def api(home: Home) -> Home:
    """An own instance that answers."""
    home.start("api")
    return home


@pytest.fixture
def system() -> Iterator[System]:
    """A system's instance under a root of its own, for real users."""
    with system_instance() as one:
        yield one
