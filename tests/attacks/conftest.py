"""Attacks are made on hosts of their own, by real users; after each the host must be as it was."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.attacks.siege import Siege
from tests.support.booted.host import boot


@pytest.fixture(scope="module")
def besieged() -> Iterator[Siege]:
    """A host for the tests of one module."""
    with closing(boot()) as host:
        yield Siege(host)


@pytest.fixture
def siege(besieged: Siege) -> Iterator[Siege]:
    """That host, looked at after the test."""
    yield besieged
    besieged.check()
