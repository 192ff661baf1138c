"""The long proofs in small: enough to see at every change that they still stand; `make proof` runs them in full."""

from pathlib import Path

import pytest
from tests.proof import cuts, kills, nosync
from tests.proof.evidence import Kind


def _quiet(_: str) -> None:
    """Nobody watches."""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    """After 25 kills, cancels and retries no task is lost, run twice, or run beside another of its user."""
    settings = kills.Settings(kills=25, users=6, slots=4, minutes=2.0, seed=25, pause=0.15, patience=20.0)
    outcome = kills.prove_kills(str(tmp_path / "proof"), settings, _quiet)
    assert [str(objection) for objection in outcome.objections] == []
    assert outcome.killed.total() == 25
    assert len(outcome.evidence.starts) > 5
    assert {request.kind for request in outcome.evidence.requests if request.said} == set(Kind)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(bool(cuts.why_not()), reason=cuts.why_not() or "it can")
@pytest.mark.skipif(bool(nosync.why_not()), reason=nosync.why_not() or "it can")
def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    """Three power cuts take no acknowledged task, and take some where nothing is synced."""
    settings = cuts.Settings(cuts=3, control=1, users=6, slots=4, seed=3, patience=20.0)
    outcome = cuts.prove_cuts(str(tmp_path / "proof"), settings, _quiet)
    assert [str(objection) for objection in outcome.objections] == []
    assert outcome.control is not None
    assert not outcome.blind
    assert any(task.acknowledged for task in outcome.evidence.entered.values())
