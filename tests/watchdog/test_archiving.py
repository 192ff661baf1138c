"""Finished tasks leave the live queue: the archive first, then their files, whoever is killed in between."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.support.crashing import crash
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.conductor import rundir
from fairlead.conductor.liveness import void
from fairlead.conductor.meta import read_meta
from fairlead.queue.accepted import Accepted
from fairlead.queue.archive import Archive, archive_tasks
from fairlead.queue.states import Status
from fairlead.watchdog import archiving

STEPS = [
    ("fairlead.queue.sqlite.claiming:Claiming.started", "after"),
    ("fairlead.queue.lockfiles:LockFiles.drop", "after"),
    ("fairlead.queue.sqlite.claiming:Claiming.finish", "before"),
    ("fairlead.queue.sqlite.claiming:Claiming.finish", "after"),
    ("fairlead.queue.archive:write_durably", "before"),
    ("fairlead.queue.archive:write_durably", "after"),
    ("fairlead.queue.sqlite.keeping:Keeping.mark_archived", "after"),
    ("fairlead.queue.accepted:remove_all", "after"),
    ("fairlead.queue.accepted:Accepted.remove", "after"),
    ("fairlead.watchdog.archiving:note_release", "after"),
    ("fairlead.conductor.rundir:finish", "before"),
    ("fairlead.conductor.rundir:finish", "after"),
]


@pytest.mark.parametrize(("place", "when"), STEPS)
def test_a_watchdog_killed_at_any_step_is_made_good(home: Home, place: str, when: str) -> None:
    """Its successor records the end once, archives it, and tidies up; the next task of the user runs."""
    dispatcher = home.dispatcher()
    going_on = "started" in place
    task = home.submit(home.counted("until [ -e go ]; do sleep 0.02; done" if going_on else "true"))
    following = home.submit(home.counted())
    dispatcher.run_once()
    home.supervisor_of(task)
    eventually(lambda: going_on or home.meta(task).ended, "it ends")
    crash(home, "watchdog", place, when)
    accepted = [one.task_id for one in Accepted(home.paths.accepted).files()]
    assert Archive(home.paths.archive).read(task) is not None or task in accepted
    Path(home.path, "go").touch()
    watchdog = home.watchdog()
    home.play(lambda: home.is_over(task, following), dispatcher, watchdog)
    watchdog.run_once()
    watchdog.retention.prune()
    assert home.starts() == sorted([task, following])
    home.assert_tidy()
    events = [event.event for event in home.store.events(task_id=task)]
    assert events == ["queued", "claimed", "started", "completed"]


def test_the_archive_is_durable_before_the_accepted_file_goes(home: Home) -> None:
    """Killed between the two, the record is there and the file still is: nothing was ever nowhere."""
    dispatcher = home.dispatcher()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    crash(home, "watchdog", "fairlead.queue.accepted:Accepted.remove", "before")
    record = Archive(home.paths.archive).read(task)
    assert record is not None
    assert record["status"] == "completed"
    assert [one.task_id for one in Accepted(home.paths.accepted).files()] == [task]


def test_a_record_tells_everything(home: Home) -> None:
    """One JSON file with the task, its attempts and events, and meta.json says that the lock is free."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    script = "echo made > made.txt; echo oops >&2; echo '[1]' > $FAIRLEAD_RESULT; exit 7"
    fields = {"action": "count", "run_at": "2020-01-01T00:00:00Z", "artifacts": ["made.txt"]}
    task = home.submit(script, "ann", title="Seven", priority="high", payload={"a": [1]}, **fields)
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    record = json.loads(Path(Archive(home.paths.archive).path(task)).read_text("utf-8"))
    assert (record["id"], record["user"], record["project"], record["action"]) == (task, "ann", "default", "count")
    assert (record["artifacts"], record["result"]) == (["made.txt"], [1])
    assert (record["error"], record["log_tail"]) == ("the agent ended with exit code 7", "oops\n")
    times = [record[f"{name}_at"] for name in ("run", "created", "started", "finished", "updated")]
    assert [datetime.fromisoformat(one).utcoffset() for one in times] == [timedelta(0)] * 5
    assert times == sorted(times)
    assert all({"timestamp", "event", "status"} <= one.keys() for one in record["events"])
    assert (record["title"], record["priority"], record["payload"]) == ("Seven", "high", {"a": [1]})
    assert (record["status"], record["exit_code"], record["reason"]) == ("failed", 7, "exit")
    assert [one["event"] for one in record["events"]] == ["queued", "claimed", "started", "failed"]
    assert record["attempts"][0]["exit_code"] == 7
    assert read_meta(rundir.finished_dir(home.paths.conductor, "default", task, 1)).lock_released


def test_many_are_archived_in_portions(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass archives so many, so that ends are recorded in between; it says whether there are more."""
    monkeypatch.setattr(archiving, "BATCH", 3)
    ids = home.submit_all([home.document(user=f"user{number}") for number in range(7)])
    for one in ids:
        home.store.cancel(one, by="ann", now=1)
    watchdog = home.watchdog()
    counts = []
    for _ in range(4):
        watchdog.archive_finished()
        counts.append((sum(task.archived for task in home.tasks()), watchdog.has_more))
    assert counts == [(3, True), (6, True), (7, False), (7, False)]


def test_a_task_that_is_retried_while_it_is_archived_keeps_its_new_file(home: Home) -> None:
    """The old version is archived, the new one stays accepted: a rebuilt store would know that it waits."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("exit 1")
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    watchdog.record_runs()
    failed = home.task(task)
    home.operations().retry(task, by="ann")
    archive_tasks(watchdog.archiving.store, watchdog.archiving.archive, [failed])
    watchdog.archiving.tidy(failed)
    waiting = home.task(task)
    assert (waiting.status, waiting.archived) == (Status.QUEUED, False)
    assert [(one, version) for one, version, _ in Accepted(home.paths.accepted).records()] == [(task, waiting.version)]


def test_a_lost_task_that_somebody_retried_first_is_archived_no_more(home: Home) -> None:
    """Two who want the same do it once."""
    watchdog = home.watchdog()
    task = home.submit(idempotent=True)
    before = home.task(task)
    lost = type(before)(
        id=task, seq=1, spec=before.spec, status=Status.LOST, version=9, created_at=1, updated_at=1, attempt=1
    )
    assert not watchdog.archiving.run_again(lost)
    assert home.task(task) == before


# ---------------------------------------------------------------------- left-overs


def test_directories_that_a_crash_left_are_put_away(home: Home) -> None:
    """Of attempts that are over; not of those that run, nor of tasks that this store does not know."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    done, runs = home.submit(), home.submit("until [ -e go ]; do sleep 0.02; done", user="bob")
    home.play(lambda: home.task(done).archived and home.task(runs).status is Status.RUNNING, dispatcher, watchdog)
    active, finished = (place(home.paths.conductor, "default", done, 1) for place in _PLACES)
    os.rename(finished, active)
    strays = [os.path.join(os.path.dirname(active), name) for name in ("notes", "20200101-000000000-aaaaaaaaaa.1")]
    for stray in strays:
        os.mkdir(stray)
    watchdog.run_once()
    assert os.path.isdir(finished)
    assert sorted(rundir.all_active(home.paths.conductor)) == sorted([home.run_dir(home.task(runs)), *strays])


_PLACES = (rundir.active_dir, rundir.finished_dir)


def test_a_directory_of_a_late_comer_is_cleared_away(home: Home) -> None:
    """Somebody who took the run back late has made its directory anew: the real one is in finished/ and stays."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("echo hello")
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    active, finished = (place(home.paths.conductor, "default", task, 1) for place in _PLACES)
    void(active)
    watchdog.archiving.tidy(home.task(task))
    assert not os.path.exists(active)
    void(active)
    watchdog.run_once()
    assert not os.path.exists(active)
    assert Path(finished, "stdout.log").read_text("utf-8") == "hello\n"


def test_the_directory_of_an_earlier_attempt_goes_when_the_next_runs(home: Home) -> None:
    """A lost run whose task was queued again leaves its directory behind if the watchdog is killed at that moment."""
    dispatcher = home.dispatcher()
    task = home.submit(
        f"test -e {home.work}/second && exit 0; touch {home.work}/second; exec sleep 1000", idempotent=True
    )
    dispatcher.run_once()
    supervisor = home.supervisor_of(task)
    eventually(lambda: Path(home.work, "second").exists(), "it runs")
    os.kill(supervisor.pid, 9)
    crash(home, "watchdog", "fairlead.queue.sqlite.admission:Admission.retry")
    assert home.task(task).status is Status.QUEUED
    assert os.path.isdir(rundir.active_dir(home.paths.conductor, "default", task, 1))
    watchdog = home.watchdog()
    watchdog.run_once()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    watchdog.run_once()
    assert home.task(task).status is Status.COMPLETED
    home.assert_tidy()
