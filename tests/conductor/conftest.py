"""A place for real runs and a spawner for them, cleared when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conductor.runs import Place
from tests.conductor.spawners import Spawner


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Directories of an instance; whatever was started in them is ended afterwards."""
    place = Place(tmp_path)
    yield place
    place.clear()


@pytest.fixture
def spawner(place: Place) -> Iterator[Spawner]:
    """A spawner, ended afterwards with all that it has started."""
    spawner = Spawner(place)
    yield spawner
    spawner.kill()
