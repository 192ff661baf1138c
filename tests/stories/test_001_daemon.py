"""The durable queue, played from end to end: many submitters, failures, reruns, and tasks that are stuck."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.proof.evidence import Process
from tests.proof.processes import children_of, is_alive, kill
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.queue.archive import Archive
from fairlead.queue.operations import Submitting
from fairlead.queue.states import Status


def submit_concurrently(home: Home, count: int) -> list[str]:
    """So many tasks from ten threads, each with an instance of its own; every fifth fails, the others make a file."""

    def submit(number: int) -> str:
        instance = home.open()
        script = f"echo result {number} > {home.path}/out-{number}.txt"
        if number % 5 == 0:
            script = f"echo cannot do {number} >&2; exit {number + 1}"
        document = home.document(home.counted(script), user=f"user{number % 4}", artifacts=[f"out-{number}.txt"])
        [done] = Submitting(instance, "ann").submit([("job.json", json.dumps(document).encode())])
        return done.id

    home.open()
    with ThreadPoolExecutor(10) as threads:
        return list(threads.map(submit, range(count)))


def test_full_integration_of_25_tasks(home: Home) -> None:
    """Each runs exactly once, artifacts are kept, failures are archived with their error, a rerun does nothing."""
    ids = submit_concurrently(home, 25)
    assert len(set(ids)) == 25
    home.cli("dispatch", "--until-empty")
    assert home.starts() == sorted(ids)
    archive = Archive(home.paths.archive)
    for number, one in enumerate(ids):
        record = archive.read(one)
        assert record is not None
        assert record["attempts"][0]["number"] == 1
        events = [event["event"] for event in record["events"]]
        if number % 5 == 0:
            assert (record["status"], record["exit_code"]) == ("failed", number + 1)
            assert record["error"] == f"the agent ended with exit code {number + 1}"
            assert f"cannot do {number}" in record["log_tail"]
            assert events == ["queued", "claimed", "started", "failed"]
        else:
            assert (record["status"], record["artifacts"]) == ("completed", [f"out-{number}.txt"])
            assert Path(home.path, f"out-{number}.txt").read_text("utf-8") == f"result {number}\n"
            assert events == ["queued", "claimed", "started", "completed"]
    home.assert_tidy()
    before = {one: Path(archive.path(one)).read_bytes() for one in ids}
    home.cli("dispatch", "--until-empty")
    home.cli("dispatch", "--once")
    assert home.starts() == sorted(ids)
    assert {one: Path(archive.path(one)).read_bytes() for one in ids} == before


def test_idempotent_processing(home: Home) -> None:
    """Tasks that are archived are never processed again: not by later passes, not by a later daemon."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    ids = [home.submit(home.counted("exit 1" if number else "true")) for number in range(2)]
    home.play(lambda: all(home.task(one).archived for one in ids), dispatcher, watchdog)
    for _ in range(3):
        watchdog.run_once()
        dispatcher.run_once()
    again = home.dispatcher()
    again.run_once()
    assert home.starts() == sorted(ids)
    assert [home.task(one).status for one in ids] == [Status.COMPLETED, Status.FAILED]


def test_the_same_file_may_be_dropped_again(home: Home) -> None:
    """Dropping it twice means two tasks: what makes a task one is its id, not its content."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    for _ in range(2):
        home.drop("same.json", home.counted())
        home.play(lambda: not Path(home.paths.spool, "same.json").exists(), dispatcher, watchdog)
    home.play(lambda: len(home.tasks()) == 2 and not home.active(), dispatcher, watchdog)
    assert len(home.starts()) == 2


def test_stuck_in_progress(home: Home) -> None:
    """A worker died and nobody noticed: `requeue` looks, finds the task lost, and sends it through again."""
    home.configure(intervals={"poll": 0.2, "watch": 3600.0})
    daemon, _ = home.up()
    script = f"test -e {home.work}/again && exit 0; until [ -e never ]; do sleep 0.02; done"
    task = home.submit(script)
    home.wait_status(task, Status.RUNNING)
    family = [home.supervisor_of(task), *(Process(*one) for one in home.beats(task).processes)]
    refused = home.cli("requeue", task, code=5)
    assert f"fairlead cancel {task}" in refused.stderr
    # The spawner would tell of a supervisor's death.
    for process in (*(one for one in children_of(daemon.pid) if one not in family), *family):
        kill(process)
    eventually(lambda: not any(map(is_alive, family)), "the worker is dead")
    assert home.task(task).status is Status.RUNNING
    Path(home.work, "again").touch()
    home.cli("requeue", task)
    [ended] = home.wait_over(task)
    assert (ended.status, ended.attempt) == (Status.COMPLETED, 2)
    assert [attempt.status for attempt in home.store.attempts(task)] == [Status.LOST, Status.COMPLETED]


def test_a_task_that_fails_repeatedly_tells_why(home: Home) -> None:
    """Every attempt is kept, and the archived record has the error of the last."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("echo attempt $FAIRLEAD_ATTEMPT >&2; exit $FAIRLEAD_ATTEMPT")
    for _ in range(3):
        home.play(lambda: home.task(task).archived, dispatcher, watchdog)
        home.operations().retry(task, by="ann")
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    record = Archive(home.paths.archive).read(task)
    assert record is not None
    assert [attempt["exit_code"] for attempt in record["attempts"]] == [1, 2, 3, 4]
    assert "attempt 4" in record["log_tail"]
    home.assert_tidy()
