"""Every test here has a desk of the system's instance, whose store is its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.desk.people import SETTINGS, System

from fairlead.base.logs import open_log
from fairlead.config.paths import Kind, Paths
from fairlead.queue.instance import Instance


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """An opened instance of the system's kind."""
    paths = Paths(str(tmp_path / "var"), kind=Kind.SYSTEM)
    os.makedirs(paths.logs)
    Path(paths.config_file).write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
    instance = Instance(paths, {}, open_log(paths.log_file, "test"))
    yield System(instance)
    instance.close()
