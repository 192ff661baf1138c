"""`why` gives the true reason, and an empty reason only to tasks that start next."""

import signal
import time
from pathlib import Path

import pytest
from tests.support.instance import Home

from fairlead.base.bell import Listener
from fairlead.base.clock import iso, moment
from fairlead.queue.decide import Obstacle, Reason
from fairlead.queue.states import Status

LONG = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture
def heard(home: Home) -> Home:
    """An instance whose daemon and watchdog seem to run: their bells hang."""
    home.open()
    for name in ("daemon", "watchdog"):
        home.keep(Listener(home.paths.bells, name))
    return home


def obstacles(home: Home, task: str) -> list[Obstacle]:
    """What keeps a task, most decisive first; the summary is the first of them."""
    answer = home.why(task)
    assert answer.obstacles == () or answer.summary == answer.obstacles[0].detail
    return list(answer.obstacles)


def start(home: Home, task: str) -> None:
    """Let a task run."""
    home.play(lambda: home.task(task).status is Status.RUNNING, home.dispatcher(), home.watchdog())


def test_nothing_is_in_the_way(heard: Home) -> None:
    """A task that starts with the next pass has no obstacle, and says so."""
    task = heard.submit()
    assert obstacles(heard, task) == []
    assert "it starts with the daemon's next pass" in heard.why(task).summary
    heard.dispatcher().run_once()
    assert heard.task(task).status is Status.CLAIMED


def test_the_daemon_does_not_run(home: Home) -> None:
    """That comes first, whatever else there is."""
    task = home.submit(run_at="+1d")
    found = obstacles(home, task)
    assert [one.reason for one in found] == [Reason.NO_DAEMON, Reason.NOT_DUE]
    assert "fairlead up" in found[0].detail


def test_its_time_has_not_come(heard: Home) -> None:
    """It says when it will."""
    due = int(time.time() * 1000) + 3_600_000
    [only] = obstacles(heard, heard.submit(run_at=iso(due)))
    assert only.reason is Reason.NOT_DUE
    assert only.detail.endswith(f", at {moment(due)}")


def test_another_task_of_the_user_runs(heard: Home) -> None:
    """It names that task."""
    running = heard.submit(LONG)
    waiting = heard.submit()
    start(heard, running)
    [only] = obstacles(heard, waiting)
    assert (only.reason, only.detail) == (Reason.USER_LOCKED, f"task {running} of ann is running")


def test_a_command_holds_the_users_lock(heard: Home) -> None:
    """It names the command's pid."""
    lock = heard.open().locks.acquire("ann", "hold-1", timeout=0)
    assert lock is not None
    [only] = obstacles(heard, heard.submit())
    assert only.reason is Reason.USER_LOCKED
    assert f"pid {lock.holder.pid}" in only.detail


def test_a_run_that_began_without_serialization_counts(heard: Home) -> None:
    """While serialization was off his tasks had locks of their own: now that it is on, they are in the way."""
    heard.configure(per_user_serialization={"enabled": False})
    running = heard.submit(LONG)
    start(heard, running)
    heard.configure()
    heard.open().apply_shares()
    [only] = obstacles(heard, heard.submit())
    assert (only.reason, only.detail) == (Reason.USER_LOCKED, f"task {running} of ann is running")


def test_a_foreign_lock_file_is_there(heard: Home) -> None:
    """It names the file and says who has to remove it."""
    task = heard.submit()
    path = Path(heard.locks_file("ann"))
    path.touch()
    [only] = obstacles(heard, task)
    assert only.reason is Reason.FOREIGN_LOCK
    assert f"{path} is not Fairlead's (made by hand)" in only.detail
    path.unlink()
    assert obstacles(heard, task) == []


def test_no_slot_is_free(heard: Home) -> None:
    """And whether anybody is served before it."""
    heard.configure(slots={"max": 1})
    start(heard, heard.submit(LONG, user="bob"))
    first, second = heard.submit(user="ann"), heard.submit(user="eve")
    found = obstacles(heard, first)
    assert [one.reason for one in found] == [Reason.NO_SLOT]
    found = obstacles(heard, second)
    assert [one.reason for one in found] == [Reason.NO_SLOT, Reason.BEHIND]
    assert (found[1].position, found[1].detail) == (1, "1 user is served first")


@pytest.mark.parametrize(
    ("scope", "word"),
    [
        ("all", "all starting is paused by eve: lunch; `fairlead resume` goes on"),
        ("user:ann", "ann is paused by eve: lunch; `fairlead resume user:ann` goes on"),
        ("project:default", "project default is paused by eve: lunch; `fairlead resume project:default` goes on"),
    ],
)
def test_it_is_paused(heard: Home, scope: str, word: str) -> None:
    """It says what is paused, by whom, why, and how it goes on."""
    task = heard.submit()
    heard.operations().pause(scope, by="eve", reason="lunch")
    found = obstacles(heard, task)
    assert (found[0].reason, found[0].detail) == (Reason.PAUSED, word)
    heard.operations().resume(scope, by="eve")
    assert obstacles(heard, task) == []


def test_a_pause_without_a_reason_and_of_somebody_else(heard: Home) -> None:
    """Only what concerns the task is told."""
    task = heard.submit()
    heard.operations().pause("user:bob", by="eve")
    assert obstacles(heard, task) == []
    heard.operations().pause("user:ann", by="eve")
    assert obstacles(heard, task)[0].detail == "ann is paused by eve; `fairlead resume user:ann` goes on"


def test_others_have_had_less(heard: Home) -> None:
    """Its place in the line is told: with one slot free, who has used more stands behind."""
    heard.configure(slots={"max": 1})
    used = heard.submit("sleep 0.1", user="ann")
    dispatcher, watchdog = heard.dispatcher(), heard.watchdog()
    heard.play(lambda: heard.is_over(used), dispatcher, watchdog)
    heard.submit(user="bob")
    heard.submit(user="eve")
    task = heard.submit(user="ann")
    [only] = obstacles(heard, task)
    assert (only.reason, only.position) == (Reason.BEHIND, 1)
    assert only.detail == "1 user is served first"


def test_another_task_is_more_urgent(heard: Home) -> None:
    """Of the same user: it names that task and its priority."""
    task, urgent = heard.submit(), heard.submit(priority="high")
    found = obstacles(heard, task)
    assert found[0].reason is Reason.LOWER_PRIORITY
    assert urgent in found[0].detail
    assert "its priority is high" in found[0].detail


def test_of_tasks_that_run_or_have_ended(heard: Home) -> None:
    """They are not waiting: it says what they do instead, and what can be done."""
    dispatcher, watchdog = heard.dispatcher(), heard.watchdog()
    task = heard.submit(LONG)
    dispatcher.run_once()
    assert "it is claimed, attempt 1, and is about to start" in heard.why(task).summary
    heard.play(lambda: heard.task(task).status is Status.RUNNING, None, watchdog)
    assert "it is running, attempt 1, since " in heard.why(task).summary
    assert "watchdog" not in heard.why(task).summary
    heard.store.cancel(task, by="eve", now=1)
    assert "; eve asked it to stop" in heard.why(task).summary
    heard.play(lambda: heard.is_over(task), dispatcher, watchdog)
    assert f": cancelled by eve; `fairlead retry {task}` runs it again" in heard.why(task).summary
    done = heard.submit()
    heard.play(lambda: heard.is_over(done), dispatcher, watchdog)
    assert "retry" not in heard.why(done).summary


def test_without_a_watchdog_ends_are_not_seen(home: Home) -> None:
    """A running task whose end nobody would record says so."""
    home.up()
    task = home.submit(LONG)
    home.wait_status(task, Status.RUNNING)
    home.stop(number=signal.SIGTERM)
    assert "the watchdog does not run, so its end is not seen" in home.why(task).summary
