"""The daemon is killed at every step from a file to a supervisor: nothing is lost, nothing runs twice."""

import os

import pytest
from tests.support.crashing import crash
from tests.support.instance import Home

from fairlead.queue.states import Status

STEPS = [
    # A file becomes a task.
    ("fairlead.queue.admit:Admission.claim", "before", 1),
    ("fairlead.queue.admit:Admission.claim", "after", 1),
    ("fairlead.queue.admit:Admission._read", "after", 1),
    ("fairlead.queue.admit:Admission._make_durable", "after", 1),
    ("fairlead.queue.sqlite.admission:Admission.add", "after", 1),
    ("fairlead.queue.admit:Admission._accept", "after", 1),
    # A task becomes a claim.
    ("fairlead.queue.sqlite.claiming:Claiming.claim", "before", 1),
    ("fairlead.queue.sqlite.claiming:Claiming.claim", "after", 1),
    ("fairlead.queue.lockfiles:create_complete", "after", 1),
    ("fairlead.queue.lockfiles:LockFiles.put", "after", 1),
    # A claim becomes a run.
    ("fairlead.daemon.dispatcher:prepare_launch", "after", 1),
    ("fairlead.conductor.rundir:make", "after", 1),
    ("fairlead.conductor.rundir:_put", "after", 1),
    ("fairlead.conductor.rundir:_put", "after", 2),
    ("fairlead.conductor.rundir:_put", "after", 3),
    ("fairlead.conductor.launcher:ProcessLauncher._spawn", "after", 1),
    ("fairlead.conductor.launcher:ProcessLauncher.launch", "after", 1),
    ("fairlead.daemon.dispatcher:capacity", "before", 1),
]


@pytest.mark.parametrize(("place", "when", "call"), STEPS)
def test_a_daemon_killed_at_any_step_leaves_nothing_undone(home: Home, place: str, when: str, call: int) -> None:
    """Its successor completes the task; the agent was started once, and nothing is left lying about."""
    home.open()
    home.drop("task.json", home.counted())
    os.utime(os.path.join(home.paths.spool, "task.json"), (1, 1))
    crash(home, "daemon", place, when, call)
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: [task.archived for task in home.tasks()] == [True], dispatcher, watchdog)
    task = home.only_task()
    assert task.status is Status.COMPLETED
    assert home.starts() == [task.id]
    watchdog.run_once()
    home.assert_tidy()


@pytest.mark.parametrize("first", ["daemon", "watchdog"])
def test_whoever_comes_first_gives_an_abandoned_claim_back(home: Home, first: str) -> None:
    """A successor and the watchdog both find the claim of a dead daemon; the second of them has nothing to do."""
    task = home.submit(home.counted())
    crash(home, "daemon", "fairlead.conductor.launcher:ProcessLauncher.launch", "before")
    assert home.task(task).status is Status.CLAIMED
    watchdog = home.watchdog()
    if first == "watchdog":
        watchdog.run_once()
        assert home.task(task).status is Status.QUEUED
    dispatcher = home.dispatcher()
    assert home.task(task).status is Status.QUEUED
    watchdog.run_once()
    [attempt] = home.store.attempts(task)
    assert attempt.error == "its dispatcher died before it started"
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.starts() == [task]


@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("fairlead.queue.lockfiles:LockFiles.drop", "before"),
        ("fairlead.queue.lockfiles:LockFiles.drop", "after"),
        ("fairlead.queue.sqlite.claiming:Claiming.finish", "after"),
    ],
)
def test_a_daemon_killed_while_it_fails_a_task_fails_it_later(home: Home, place: str, when: str) -> None:
    """A task that cannot be launched ends as failed, once, whenever the daemon is killed."""
    home.configure(projects={"gone": {"path": str(home.path / "nowhere")}})
    task = home.submit(project="gone")
    crash(home, "daemon", place, when)
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    ended = home.task(task)
    assert ended.status is Status.FAILED
    assert ended.outcome
    assert ended.outcome.reason == "cannot_launch"
    home.assert_tidy()


def test_a_task_whose_claims_are_abandoned_each_time_fails_at_last(home: Home) -> None:
    """After so many tries in a row it is failed, so that a task that kills daemons does not do so for ever."""
    home.configure(limits={"start_attempts": 2})
    task = home.submit()
    for _ in range(2):
        crash(home, "daemon", "fairlead.conductor.launcher:ProcessLauncher.launch", "before")
    home.dispatcher()
    ended = home.task(task)
    assert ended.status is Status.FAILED
    assert ended.outcome
    assert ended.outcome.reason == "never_started"
    assert "2 times in a row: its dispatcher died before it started" in ended.outcome.error


def test_claims_of_a_living_dispatcher_are_left_alone(home: Home) -> None:
    """A new dispatcher takes back only what a dead one has left, whatever the machine was called then."""
    first = home.dispatcher()
    task = home.submit("until [ -e go ]; do sleep 0.02; done")
    first.run_once()
    home.dispatcher()
    assert home.task(task).status is Status.CLAIMED
    home.supervisor_of(task)
    home.store.db.run("UPDATE locks SET host = 'elsewhere', pid = 1, pid_start = 0")
    home.dispatcher()
    assert home.task(task).status is Status.CLAIMED


def test_claims_of_a_dead_dispatcher_are_taken_back(home: Home) -> None:
    """By its process and its boot, whatever the machine was called then."""
    task = home.submit()
    crash(home, "daemon", "fairlead.conductor.launcher:ProcessLauncher.launch", "before")
    home.store.db.run("UPDATE locks SET host = 'elsewhere'")
    home.dispatcher()
    assert home.task(task).status is Status.QUEUED


def test_a_reboot_is_no_tasks_fault(home: Home) -> None:
    """Claims of another boot are given back, however often, and do not count as tries."""
    home.configure(limits={"start_attempts": 1})
    task = home.submit()
    crash(home, "daemon", "fairlead.conductor.launcher:ProcessLauncher.launch", "before")
    home.store.db.run("UPDATE locks SET boot_id = 'another'")
    home.dispatcher()
    assert home.task(task).status is Status.QUEUED
    assert [one.error for one in home.store.attempts(task)] == ["the machine went down before it started"]
