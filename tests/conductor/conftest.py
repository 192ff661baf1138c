"""A place for real runs, cleared when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conductor.runs import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Directories of an instance; whatever was started in them is ended afterwards."""
    place = Place(tmp_path)
    yield place
    place.clear()
