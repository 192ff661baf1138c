"""Attacks are made on hosts of their own, by real users; after each the host must be as it was."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.attacks.protected import settings
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


@pytest.fixture
def mallory(siege: Siege) -> str:
    """Somebody who may use the queue, and means ill."""
    return siege.attacker()


@pytest.fixture(params=[0, 1], ids=["unprotected", "protected"])
def protection(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the kernel itself does against links and FIFOs of others, off and on."""
    with settings(request.param):
        yield request.param
