"""The judge is not blind: forged evidence of every charge makes it object, and honest evidence does not."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from tests.proof.evidence import End, Entered, Evidence, Process, Record, Run, Start
from tests.proof.judge import RECORDING, Charge, judge

SUPERVISOR = Process(500, 5000)
SECOND = 10**9


def start(name: str, *, user: str = "ann", at: int = SECOND, pid: int = 100, attempt: int = 1) -> Start:
    return Start(
        name=name,
        user=user,
        at=at,
        process=Process(pid, pid * 10),
        parent=SUPERVISOR,
        run=Run(f"id-{name}", attempt),
        first=attempt == 1,
    )


def end(name: str, *, at: int = 2 * SECOND, pid: int = 100, code: int = 0) -> End:
    return End(name=name, at=at, process=Process(pid, pid * 10), code=code)


def record(name: str, status: str = "completed", *, attempt: int = 1, reason: str = "exit") -> Record:
    return Record(id=f"id-{name}", name=name, status=status, attempt=attempt, reason=reason)


def honest() -> Evidence:
    """One task that was acknowledged, ran once, and completed."""
    return Evidence(
        entered={"a": Entered(name="a", user="ann", acknowledged=True)},
        starts=[start("a")],
        ends=[end("a")],
        marks={"a"},
        records=[record("a")],
    )


def rerun(*, idempotent: bool, killed: bool) -> Evidence:
    """A task that started, was lost, and started again."""
    return Evidence(
        entered={"a": Entered(name="a", user="ann", acknowledged=True, idempotent=idempotent)},
        starts=[start("a"), replace(start("a", at=3 * SECOND, pid=101, attempt=2), parent=Process(501, 5010))],
        ends=[end("a", at=4 * SECOND, pid=101)],
        marks={"a"},
        records=[record("a", attempt=2)],
        killed={SUPERVISOR} if killed else set(),
    )


def charges(evidence: Evidence) -> set[Charge]:
    return {objection.charge for objection in judge(evidence)}


def test_honest_evidence_stands() -> None:
    """A task that ran once and completed gives no reason to object."""
    assert judge(honest()) == []


def test_a_lost_task_is_seen() -> None:
    """An acknowledged task that is nowhere in the archive is an objection."""
    evidence = honest()
    evidence.records = []
    assert charges(evidence) == {Charge.LOST}


def test_a_stuck_task_is_seen() -> None:
    """An acknowledged task that is still waiting when nothing moves any more is an objection of its own."""
    evidence = honest()
    evidence.records = []
    evidence.waiting = {"a"}
    assert charges(evidence) == {Charge.STUCK}


def test_an_unacknowledged_task_may_be_missing() -> None:
    """A task whose submitter died before it heard anything may be there or not."""
    evidence = Evidence(entered={"a": Entered(name="a", user="ann", acknowledged=False)})
    assert judge(evidence) == []


def test_two_records_of_one_task_are_seen() -> None:
    """One task file that became two tasks is an objection."""
    evidence = honest()
    evidence.records.append(replace(record("a"), id="other"))
    assert Charge.DOUBLED in charges(evidence)


def test_a_doubled_start_is_seen() -> None:
    """A second start of a task that is not idempotent is an objection, whoever was killed."""
    assert charges(rerun(idempotent=False, killed=True)) == {Charge.RUN_TWICE}


def test_an_idempotent_task_may_run_again_after_a_loss() -> None:
    """An idempotent task whose first supervisor was killed may start again."""
    assert judge(rerun(idempotent=True, killed=True)) == []


def test_an_idempotent_task_is_not_rerun_for_nothing() -> None:
    """An idempotent task of which nothing was killed must not start again."""
    assert charges(rerun(idempotent=True, killed=False)) == {Charge.RUN_TWICE}


def test_a_start_that_left_only_its_mark_counts() -> None:
    """A first start that died before its note is known by its mark, and the second start by finding that."""
    evidence = rerun(idempotent=False, killed=True)
    evidence.starts = evidence.starts[1:]
    assert charges(evidence) == {Charge.RUN_TWICE}


def test_an_overlap_caught_in_the_act_is_seen() -> None:
    """An agent that found its user's lock taken is an objection."""
    evidence = honest()
    evidence.starts = [replace(start("a"), held_by="b 99")]
    assert charges(evidence) == {Charge.OVERLAP}


def test_an_overlap_by_the_clock_is_seen() -> None:
    """Two runs of one user whose times overlap are an objection, even if no lock was found taken."""
    evidence = honest()
    evidence.entered["b"] = Entered(name="b", user="ann", acknowledged=True)
    evidence.starts.append(start("b", at=SECOND + 1, pid=101))
    evidence.ends.append(end("b", at=3 * SECOND, pid=101))
    evidence.records.append(record("b"))
    assert charges(evidence) == {Charge.OVERLAP}


def test_runs_of_two_users_may_overlap() -> None:
    """Two users run at the same time, as they should."""
    evidence = honest()
    evidence.entered["b"] = Entered(name="b", user="bob", acknowledged=True)
    evidence.starts.append(start("b", user="bob", at=SECOND + 1, pid=101))
    evidence.ends.append(end("b", at=3 * SECOND, pid=101))
    evidence.records.append(record("b"))
    assert judge(evidence) == []


def test_a_completion_without_an_end_is_seen() -> None:
    """The archive must not say completed of an agent that never came to its end."""
    evidence = honest()
    evidence.ends = []
    assert charges(evidence) == {Charge.NOT_RUN}


@pytest.mark.parametrize(("status", "code"), [("completed", 3), ("failed", 0)])
def test_a_wrong_end_is_seen(status: str, code: int) -> None:
    """Completed with an error code, or failed without one, contradicts what the agent noted."""
    evidence = honest()
    evidence.ends = [end("a", code=code)]
    evidence.records = [record("a", status)]
    assert charges(evidence) == {Charge.WRONG_END}


@pytest.mark.parametrize("status", ["lost", "failed"])
def test_a_needless_loss_is_seen(status: str) -> None:
    """A run of which nothing was killed must neither be lost nor fail without an end."""
    evidence = honest()
    evidence.ends = []
    evidence.records = [record("a", status, reason="signal")]
    assert charges(evidence) == {Charge.NEEDLESS}


def test_a_loss_is_excused_by_its_supervisor_alone() -> None:
    """A run is lost with reason if its own supervisor was killed; another process does not excuse it."""
    evidence = honest()
    evidence.records = [record("a", "lost")]
    evidence.killed = {Process(77, 770)}
    assert charges(evidence) == {Charge.NEEDLESS}
    evidence.killed = {SUPERVISOR}
    assert judge(evidence) == []


def test_a_loss_before_the_first_note_is_excused_by_the_run_directory() -> None:
    """An attempt that died before its agent spoke is known by the supervisor that its run directory names."""
    evidence = honest()
    evidence.starts, evidence.ends, evidence.marks = [], [], set()
    evidence.records = [record("a", "lost")]
    evidence.killed = {SUPERVISOR}
    assert charges(evidence) == {Charge.NEEDLESS}
    evidence.supervisors = {Run("id-a", 1): SUPERVISOR}
    assert judge(evidence) == []


def test_a_failure_is_excused_by_its_killed_agent() -> None:
    """A run whose agent was killed has failed with reason."""
    evidence = honest()
    evidence.ends = []
    evidence.records = [record("a", "failed", reason="signal")]
    evidence.killed = {Process(100, 1000)}
    assert judge(evidence) == []


def test_a_power_cut_excuses_what_ran_then() -> None:
    """A cut excuses the loss of a run that was under way, not of one that had ended long before."""
    evidence = honest()
    evidence.records = [record("a", "lost")]
    evidence.cuts = [2 * SECOND + RECORDING + 1]
    assert charges(evidence) == {Charge.NEEDLESS}
    evidence.cuts = [2 * SECOND + 1]
    assert judge(evidence) == []


@pytest.mark.parametrize("status", ["queued", "claimed", "running", "cancelled"])
def test_a_status_that_cannot_be_is_seen(status: str) -> None:
    """When the judge looks, everything has ended, and nobody has cancelled anything."""
    evidence = honest()
    evidence.records = [record("a", status)]
    assert charges(evidence) == {Charge.UNFINISHED}


def test_a_stranger_in_the_archive_is_seen() -> None:
    """A record of a task that was never entered, or that cannot be read, is an objection."""
    evidence = honest()
    evidence.records.append(Record(id="x.json", name="", status="unreadable"))
    assert charges(evidence) == {Charge.UNKNOWN}


@pytest.mark.parametrize(
    ("where", "charge"),
    [("alive", Charge.LEFT_BEHIND), ("rejected", Charge.REJECTED), ("crashes", Charge.CRASHED)],
)
def test_what_belongs_to_no_task_is_seen(where: str, charge: Charge) -> None:
    """Processes left behind, good files refused and services that ended by themselves are objections."""
    evidence = honest()
    getattr(evidence, where).append("something")
    assert charges(evidence) == {charge}


def test_the_witness_knows_nothing_of_the_product() -> None:
    """No module of the proofs imports the product: it is started, and judged from outside."""
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.split(".")[0] == "fairlead"], path.name
