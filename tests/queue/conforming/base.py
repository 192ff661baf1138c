"""What all parts of the suite start from."""

from collections.abc import Callable, Iterator

import pytest
from tests.queue.driver import Driver, MakeStore
from tests.queue.invariants import check_store


class Conforming:
    """A store to be held to the page; whoever tests one gives `make_store`, and `audit` for what only it has."""

    @pytest.fixture
    def drive(self, make_store: MakeStore) -> Driver:
        return Driver(make_store())

    @pytest.fixture(autouse=True)
    def _invariants(self, drive: Driver, audit: Callable[[], None]) -> Iterator[None]:
        """Whatever a test has done, the invariants hold afterwards."""
        yield
        check_store(drive.store)
        audit()
