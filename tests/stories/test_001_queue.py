"""001, the job queue: its concurrency guarantees and its integration test, played with the store alone."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.queue.driver import HOUR, NOW, Driver, a_spec
from tests.queue.invariants import ALL, check_counters, check_store
from tests.support.programs import run

from fairlead.base.ids import new_id
from fairlead.queue.errors import StaleTokenError
from fairlead.queue.sqlite.store import open_store
from fairlead.queue.states import IllegalTransitionError, Status
from fairlead.queue.store import Claim, Filter, Submission


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


@pytest.fixture
def drive(path: str) -> Iterator[Driver]:
    drive = Driver(open_store(path))
    drive.slots = ALL
    yield drive
    check_store(drive.store)
    check_counters(path)
    drive.store.close()


def enqueue(path: str, number: int) -> str:
    """One submitter's call: its own connection, its own id."""
    store = open_store(path)
    try:
        item = Submission(id=new_id(NOW), spec=a_spec(f"u{number}", title=f"job {number}"), created_at=NOW)
        [admitted] = store.add([item], now=NOW, warn_at=ALL, refuse_at=ALL)
        return admitted.id if admitted.new else "collision"
    finally:
        store.close()


def dequeue(path: str) -> list[str]:
    """What one worker gets."""
    worker = Driver(open_store(path))
    worker.slots = ALL
    try:
        return [claim.task.id for claim in worker.claim()]
    finally:
        worker.store.close()


# ---------------------------------------------------------------------- 1: no collisions


def test_concurrent_enqueue_no_collisions(path: str, drive: Driver) -> None:
    """50 jobs from 10 threads: 50 different ids, all of them in the queue."""
    with ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(lambda number: enqueue(path, number), range(50)))
    assert len(set(ids)) == 50
    assert {task.id for task in drive.store.list_tasks(Filter())} == set(ids)


def test_a_thousand_from_thirty_two_processes(path: str, drive: Driver) -> None:
    """1,000 jobs from 32 processes: 1,000 different ids, all acknowledged, all there."""
    said = [line.split() for line in run("queue", "add", path, 32, 1000).splitlines()]
    ids = {task_id for task_id, new in said if new == "True"}
    assert len(ids) == 1000
    assert {task.id for task in drive.store.list_tasks(Filter(limit=ALL))} == ids


# ---------------------------------------------------------------------- 2 and 3: exactly once


def test_dequeue_exactly_once(path: str, drive: Driver) -> None:
    """What one worker has claimed the next one does not get, and a second dequeue is empty."""
    ids = [drive.add(f"u{number}") for number in range(5)]
    assert sorted(dequeue(path)) == sorted(ids)
    assert dequeue(path) == []
    assert {task.status for task in drive.store.list_tasks(Filter())} == {Status.CLAIMED}


def test_concurrent_dequeue_no_duplicates(path: str, drive: Driver) -> None:
    """Ten workers at once: every job goes to one of them."""
    ids = [drive.add(f"u{number}") for number in range(50)]
    with ThreadPoolExecutor(10) as pool:
        got = Counter(task_id for claimed in pool.map(lambda _: dequeue(path), range(10)) for task_id in claimed)
    assert got == Counter(ids)


def test_a_claim_is_bounded(drive: Driver) -> None:
    """A worker gets as many as it has slots, never the whole queue."""
    for number in range(10):
        drive.add(f"u{number}")
    drive.slots = 3
    assert len(drive.claim()) == 3
    assert drive.claim() == []


# ---------------------------------------------------------------------- order and time


def test_jobs_come_in_priority_order(drive: Driver) -> None:
    """critical, high, medium, low; first in, first out inside each."""
    ranks = [3, 0, 2, 1, 2, 0, 3]
    ids = [drive.add(priority=rank) for rank in ranks]
    expected = [task_id for _, task_id in sorted(zip(ranks, ids, strict=True), key=lambda pair: pair[0])]
    assert drive.drain() == expected


def test_jobs_with_a_later_run_at_are_skipped(path: str, drive: Driver) -> None:
    """An overnight job is not handed out before its time."""
    drive.add("night", run_at=NOW + 12 * HOUR)
    day = drive.add("day")
    assert dequeue(path) == [day]


# ---------------------------------------------------------------------- 5: idempotency


def test_a_rerun_finds_nothing_to_do(path: str, drive: Driver) -> None:
    """Completed and failed jobs are never handed out again."""
    for number in range(4):
        claim = drive.run_one(f"u{number}")
        drive.finish(claim, Status.COMPLETED if number % 2 else Status.FAILED)
    assert dequeue(path) == []
    assert drive.store.count_active() == 0


def test_a_finished_job_cannot_be_finished_otherwise(drive: Driver) -> None:
    """The first end counts: a late worker, or the same one again, changes nothing."""
    claim = drive.run_one()
    assert drive.finish(claim, Status.COMPLETED, artifacts=("out.txt",), result={"output": "Success"})
    assert not drive.finish(claim, Status.FAILED)
    with pytest.raises(StaleTokenError):
        drive.start(claim)
    with pytest.raises(IllegalTransitionError):
        drive.store.retry(claim.task.id, by="bob", now=drive.now)
    outcome = drive.store.get(claim.task.id).outcome
    assert outcome
    assert (outcome.artifacts, outcome.result) == (("out.txt",), {"output": "Success"})


def test_a_failed_jobs_error_is_preserved(drive: Driver) -> None:
    """Message and log tail stay with the task and with the attempt."""
    claim = drive.run_one()
    drive.finish(claim, Status.FAILED, error="LLM API timeout after 120 seconds", log_tail="Traceback …")
    task = drive.store.get(claim.task.id)
    assert task.outcome
    assert (task.outcome.error, task.outcome.log_tail) == ("LLM API timeout after 120 seconds", "Traceback …")
    assert drive.store.attempts(task.id)[0].error == "LLM API timeout after 120 seconds"


def test_events_tell_the_story(drive: Driver) -> None:
    """enqueued, claimed, started, completed: each with its time and state."""
    claim = drive.run_one()
    drive.pass_time(337)
    drive.finish(claim)
    events = drive.store.events(task_id=claim.task.id)
    assert [event.event for event in events] == ["queued", "claimed", "started", "completed"]
    assert [event.status for event in events] == [Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.COMPLETED]
    assert events[-1].at - events[0].at == 337_000
    assert events[1].detail["pid"]


def test_a_job_whose_worker_died_is_not_silently_run_again(path: str, drive: Driver) -> None:
    """Stuck in in_progress: it stays claimed until somebody records it as lost; then a person may retry it."""
    [claim] = drive.claim_task(drive.add())
    assert dequeue(path) == []
    drive.finish(claim, Status.LOST)
    assert dequeue(path) == []
    drive.store.retry(claim.task.id, by="a person", now=drive.now)
    assert dequeue(path) == [claim.task.id]


# ---------------------------------------------------------------------- the integration test


def test_full_integration_of_25_jobs(path: str, drive: Driver) -> None:
    """Enqueued by ten threads, worked on by five, every fifth fails: each runs once, all is kept, a rerun is empty."""
    with ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(lambda number: enqueue(path, number), range(25)))
    with ThreadPoolExecutor(5) as pool:
        ran = Counter(task_id for worked in pool.map(lambda _: _work(path), range(5)) for task_id in worked)
    assert ran == Counter(ids)
    tasks = drive.store.list_tasks(Filter())
    assert Counter(task.status for task in tasks) == {Status.COMPLETED: 20, Status.FAILED: 5}
    for task in tasks:
        assert task.outcome
        assert task.outcome.artifacts == ((f"{task.id}.txt",) if task.status is Status.COMPLETED else ())
        assert ("simulated" in task.outcome.error) == (task.status is Status.FAILED)
    assert {task.id for task in drive.store.unarchived(ALL)} == set(ids)
    drive.store.mark_archived({task.id: task.version for task in tasks})
    assert drive.store.unarchived(ALL) == []
    assert dequeue(path) == []


def _work(path: str) -> list[str]:
    """A worker: takes what there is until nothing is left."""
    worker = Driver(open_store(path))
    worker.slots = 15
    ran = []
    while claims := worker.claim():
        for claim in claims:
            worker.start(claim)
            assert _end(worker, claim)
            ran.append(claim.task.id)
    worker.store.close()
    return ran


def _end(worker: Driver, claim: Claim) -> bool:
    if int(claim.task.spec.title.split()[1]) % 5 == 0:
        return worker.finish(claim, Status.FAILED, error="simulated failure")
    return worker.finish(claim, artifacts=(f"{claim.task.id}.txt",))
