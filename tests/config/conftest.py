"""Fixtures for the tests of the configuration."""

from pathlib import Path

import pytest
from tests.config.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """An instance without any configuration."""
    return Instance(tmp_path)
