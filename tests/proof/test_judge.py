"""The judge is not blind: forged evidence of every charge makes it object, and honest evidence does not."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from tests.proof.evidence import End, Entered, Evidence, Kind, Process, Record, Request, Run, Start
from tests.proof.judge import RECORDING, STARTING, Charge, judge, lost_without_a_start

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


# ---------------------------------------------------------------------- power cuts that nobody could witness


def unnoted(count: int, *, began: int | None = SECOND) -> Evidence:
    """Tasks that are called lost by a cut at two seconds, and whose agents never spoke."""
    names = [f"a{number}" for number in range(count)]
    return Evidence(
        entered={name: Entered(name=name, user=name, acknowledged=True) for name in names},
        records=[replace(record(name, "lost", reason="reboot"), began=began) for name in names],
        cuts=[2 * SECOND, 2 * STARTING],
        slots=2,
    )


def test_a_cut_excuses_as_many_unseen_losses_as_there_are_slots() -> None:
    """So many can have been between the beginning of their run and their agent's first word; they are counted."""
    assert judge(unnoted(2)) == []
    assert len(lost_without_a_start(unnoted(2))) == 2
    assert charges(unnoted(3)) == {Charge.UNNOTED}


def test_unseen_losses_whose_time_is_unknown_are_bounded_by_all_cuts() -> None:
    """Without the product's word on when it began, two cuts with two slots excuse four."""
    assert judge(unnoted(4, began=None)) == []
    assert charges(unnoted(5, began=None)) == {Charge.UNNOTED}


def test_an_unseen_loss_long_before_the_cut_is_needless() -> None:
    """An agent that had the time to speak did so, or was never started."""
    evidence = unnoted(1)
    evidence.cuts = [SECOND + STARTING + 1]
    assert charges(evidence) == {Charge.NEEDLESS}
    evidence.cuts = [SECOND - 1]
    assert charges(evidence) == {Charge.NEEDLESS}


def test_a_loss_with_a_start_is_not_counted_among_the_unseen() -> None:
    """Nor is one whose supervisor was killed by us."""
    evidence = unnoted(2)
    evidence.starts = [replace(start("a0"), user="a0")]
    evidence.killed, evidence.supervisors = {SUPERVISOR}, {Run("id-a1", 1): SUPERVISOR}
    assert lost_without_a_start(evidence) == []
    assert judge(evidence) == []


# ---------------------------------------------------------------------- cancels and retries


def ask(kind: Kind, said: str, *, at: int, attempt: int = 1) -> Request:
    """A request that took a millisecond."""
    return Request(kind=kind, name="a", asked=at, answered=at + SECOND // 1000, said=said, attempt=attempt)


def cancelled(said: str, *, at: int) -> Evidence:
    """A task that was started at one second, and is archived as cancelled."""
    evidence = honest()
    evidence.ends = []
    evidence.records = [record("a", "cancelled")]
    evidence.requests = [ask(Kind.CANCEL, said, at=at)]
    return evidence


@pytest.mark.parametrize("said", ["running", ""])
def test_a_cancel_may_cancel(said: str) -> None:
    """Whether it was acknowledged or its command was killed on the way."""
    assert judge(cancelled(said, at=2 * SECOND)) == []


def test_a_cancel_that_nobody_asked_for_is_seen() -> None:
    """Nor does a cancel from before an acknowledged retry count."""
    evidence = cancelled("running", at=2 * SECOND)
    evidence.requests = []
    assert charges(evidence) == {Charge.UNASKED}
    evidence = cancelled("running", at=2 * SECOND)
    evidence.requests.append(ask(Kind.RETRY, "queued", at=3 * SECOND))
    evidence.records = [record("a", "cancelled", attempt=2)]
    assert charges(evidence) == {Charge.UNASKED}


def test_a_waiting_task_that_starts_after_its_cancel_is_seen() -> None:
    """It was told to be cancelled, and no attempt was on its way."""
    assert charges(cancelled("cancelled", at=SECOND // 2)) == {Charge.CANCELLED_RAN}


def test_an_attempt_that_was_on_its_way_may_start_after_the_cancel() -> None:
    """One that was claimed; a second one may not."""
    evidence = cancelled("claimed", at=SECOND // 2)
    assert judge(evidence) == []
    evidence.entered["a"] = replace(evidence.entered["a"], idempotent=True)
    evidence.starts.append(start("a", at=3 * SECOND, pid=101, attempt=2))
    evidence.killed, evidence.killed_at = {SUPERVISOR}, {SUPERVISOR: 2 * SECOND}
    assert charges(evidence) == {Charge.CANCELLED_RAN}


@pytest.mark.parametrize(("killed", "seen"), [(3, True), (1, False)])
def test_a_cancelled_run_that_was_lost_is_not_run_again(killed: int, *, seen: bool) -> None:
    """Not even an idempotent one, if its supervisor was killed after the cancel; before it, the cancel met the next."""
    evidence = rerun(idempotent=True, killed=True)
    evidence.starts = [evidence.starts[0], replace(evidence.starts[1], at=5 * SECOND)]
    evidence.ends = []
    evidence.records = [record("a", "cancelled", attempt=2)]
    evidence.requests = [ask(Kind.CANCEL, "running", at=2 * SECOND)]
    evidence.killed_at = {SUPERVISOR: killed * SECOND}
    assert charges(evidence) == ({Charge.CANCELLED_RAN} if seen else set())


def retried(said: str) -> Evidence:
    """A task that failed, was retried at three seconds, and completed."""
    evidence = rerun(idempotent=False, killed=False)
    evidence.starts[1] = replace(evidence.starts[1], at=4 * SECOND)
    evidence.ends = [end("a", code=3), end("a", at=5 * SECOND, pid=101)]
    evidence.requests = [ask(Kind.RETRY, said, at=3 * SECOND)]
    return evidence


@pytest.mark.parametrize("said", ["queued", ""])
def test_a_retry_is_worth_one_start(said: str) -> None:
    """Acknowledged or not; a third start needs another one."""
    evidence = retried(said)
    assert judge(evidence) == []
    evidence.starts.append(start("a", at=6 * SECOND, pid=102, attempt=3))
    evidence.ends.append(end("a", at=7 * SECOND, pid=102))
    evidence.records = [record("a", attempt=3)]
    assert charges(evidence) == {Charge.RUN_TWICE}


def test_an_attempt_that_starts_twice_is_seen() -> None:
    """However many retries there were: each attempt runs at most once."""
    evidence = retried("queued")
    evidence.requests.append(ask(Kind.RETRY, "queued", at=3 * SECOND))
    evidence.starts[1] = replace(evidence.starts[1], run=Run("id-a", 1))
    evidence.records = [record("a", attempt=2)]
    assert Charge.RUN_TWICE in charges(evidence)


def test_a_retry_after_a_cancel_may_start() -> None:
    """What was cancelled while it waited starts once somebody asks for that; not before."""
    evidence = honest()
    evidence.requests = [
        ask(Kind.CANCEL, "cancelled", at=SECOND // 4),
        ask(Kind.RETRY, "queued", at=SECOND // 2, attempt=0),
    ]
    assert judge(evidence) == []
    evidence.requests[1] = ask(Kind.RETRY, "queued", at=3 * SECOND, attempt=0)
    assert charges(evidence) == {Charge.CANCELLED_RAN}


def test_a_forgotten_retry_is_seen() -> None:
    """It was acknowledged, and there is no other attempt; a cancel that came later explains that."""
    evidence = honest()
    evidence.ends = [end("a", code=3)]
    evidence.records = [record("a", "failed")]
    evidence.requests = [ask(Kind.RETRY, "queued", at=3 * SECOND)]
    assert charges(evidence) == {Charge.FORGOTTEN}
    evidence.requests.append(ask(Kind.CANCEL, "cancelled", at=4 * SECOND))
    evidence.records = [record("a", "cancelled")]
    assert judge(evidence) == []
    evidence.requests = [ask(Kind.RETRY, "", at=3 * SECOND)]
    evidence.records = [record("a", "failed")]
    assert judge(evidence) == []


def test_a_forgotten_cancel_is_seen() -> None:
    """It was told to be cancelled, and is not; a retry that came later explains that."""
    evidence = honest()
    evidence.starts, evidence.ends, evidence.records = [], [], [record("a", "lost")]
    evidence.killed, evidence.supervisors = {SUPERVISOR}, {Run("id-a", 1): SUPERVISOR}
    evidence.requests = [ask(Kind.CANCEL, "cancelled", at=SECOND)]
    assert charges(evidence) == {Charge.FORGOTTEN}
    evidence.requests.append(ask(Kind.RETRY, "queued", at=2 * SECOND, attempt=0))
    assert judge(evidence) == []


@pytest.mark.parametrize("status", ["queued", "claimed", "running"])
def test_a_status_that_cannot_be_is_seen(status: str) -> None:
    """When the judge looks, everything has ended."""
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
