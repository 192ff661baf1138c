"""Every test here has an instance of its own, and runs commands in its own process unless it needs a real one."""

import pytest
from tests.cli.running import Run
from tests.support.instance import Home, home

from fairlead.base.service import Single

__all__ = ["home"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody in this process waits for a predecessor on its way out."""
    monkeypatch.setattr(Single.take, "__defaults__", (0.0,))


@pytest.fixture
def run(home: Home, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `fairlead` on the test's instance, in this process."""
    return Run(home, capsys)
