"""Runs whose directories or files were removed, replaced or spoilt, by their agents or by others."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.proof.processes import is_alive, kill
from tests.support.instance import Home
from tests.support.patience import eventually
from tests.watchdog.running import LONG, SilentLauncher, begin, gone_on, outcome_of

from fairlead.base.identity import ProcessId, read_stat
from fairlead.conductor import rundir, verdict
from fairlead.conductor.liveness import find_supervisor
from fairlead.conductor.meta import write_meta
from fairlead.conductor.tree import marked
from fairlead.queue.errors import StoreBusyError
from fairlead.queue.states import Status
from fairlead.queue.task import Task
from fairlead.watchdog.watchdog import Watchdog

# ---------------------------------------------------------------------- without a directory


def vanish(home: Home, remove: str, then: str) -> tuple[str, Watchdog]:
    """A run whose agent removes the run directory before anybody has seen it start."""
    long = {"intervals": {"start_grace": 0.01, "heartbeat": 3600.0}}
    home.configure(**long, per_user_serialization={"lock_timeout_seconds": 14400.0})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(home.counted(f"{remove}; touch {home.work}/removed; {then}"))
    dispatcher.run_once()
    eventually(lambda: Path(home.work, "removed").exists(), "the directory is removed")
    return task, watchdog


#: For longer than a supervisor looks whether its directory is still there.
AGAIN_AND_AGAIN = "for _ in $(seq 40); do rm -rf $FAIRLEAD_RUN_DIR; sleep 0.01; done"


def test_a_run_that_removed_its_directory_is_not_started_again(home: Home) -> None:
    """Its processes bear the lock's id, so it lives; its supervisor writes its end into a new directory."""
    task, watchdog = vanish(home, AGAIN_AND_AGAIN, LONG)
    home.play(lambda: home.task(task).status is Status.RUNNING, None, watchdog)
    assert home.log("directory_vanished", task=task)
    assert [lock.user for lock in home.store.locks()] == ["ann"]
    Path(home.path, "go").touch()
    home.play(lambda: home.task(task).archived, None, watchdog)
    home.dispatcher().run_once()
    assert home.task(task).status is Status.COMPLETED
    assert home.starts() == [task]


def test_a_tidy_agent_is_not_run_again(home: Home) -> None:
    """It removes its run directory as its last act, while nobody looks: its end is written all the same."""
    task, watchdog = vanish(home, "rm -rf $FAIRLEAD_RUN_DIR", "true")
    eventually(lambda: not marked("FAIRLEAD_TASK_ID", task), "it ends")
    home.play(lambda: home.task(task).archived, home.dispatcher(), watchdog)
    assert home.task(task).status is Status.COMPLETED
    assert home.starts() == [task]


@pytest.mark.parametrize("how", ["touch", "mkdir", "ln -s /tmp"])
def test_an_agent_that_replaces_its_directory_locks_nobody_out(home: Home, how: str) -> None:
    """Whatever it puts there, and whatever it clears from its environment: it lives, ends, and its user is free."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    then = f"rm -rf $D; {how} $D; touch {home.work}/done; {LONG}"
    replaced = f'D=$FAIRLEAD_RUN_DIR; exec env -i PATH=$PATH D=$D sh -c "{then}"'
    task, following = home.submit(replaced), home.submit(home.counted())
    home.play(lambda: Path(home.work, "done").exists(), dispatcher, watchdog)
    for _ in range(5):
        watchdog.run_once()
        dispatcher.run_once()
    assert home.starts() == []
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(following), dispatcher, watchdog)
    assert [home.task(one).status for one in (task, following)] == [Status.COMPLETED] * 2


def test_a_run_that_removed_the_whole_place_and_ended_has_started(home: Home) -> None:
    """Its end can be written nowhere, but its supervisor has rung: somebody must have been there."""
    task, watchdog = vanish(home, f"rm -rf {home.paths.conductor}", "true")
    eventually(lambda: not marked("FAIRLEAD_TASK_ID", task), "it ends")
    home.configure()
    watchdog = home.watchdog()
    watchdog.hear({f"ended {task}.1"})
    for step in watchdog.steps():
        step()
    assert home.task(task).status is Status.LOST
    assert home.starts() == [task]


@pytest.mark.parametrize("restart", [False, True], ids=["same dispatcher", "next dispatcher"])
def test_a_hidden_agent_that_removed_the_place_is_not_taken_for_unstarted(home: Home, *, restart: bool) -> None:
    """No directory, no mark in its environment: its supervisor says by its name that it lives."""
    then = f"exec env -i PATH=$PATH sh -c '{LONG}'"
    task, watchdog = vanish(home, "rm -rf $(dirname $FAIRLEAD_RUN_DIR)", then)
    following = home.submit(home.counted())
    if restart:
        home.store.db.run("UPDATE locks SET pid_start = 1")  # the dispatcher that claimed it is gone
    dispatcher = home.dispatcher()
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    assert home.task(following).status is Status.QUEUED
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(following), dispatcher, watchdog)
    assert [home.task(one).status for one in (task, following)] == [Status.COMPLETED] * 2
    assert home.starts() == [task, following]


@pytest.mark.parametrize("levels", ["", "/..", "/../.."], ids=["directory", "active", "project"])
def test_a_tidy_agent_of_whom_nobody_knew_is_not_run_again(home: Home, levels: str) -> None:
    """However much it removed, and although nobody watched: its end is there when the watchdog comes."""
    task, watchdog = vanish(home, f"cd /; rm -rf $(realpath $FAIRLEAD_RUN_DIR{levels})", "true")
    eventually(lambda: not marked("FAIRLEAD_TASK_ID", task), "it ends")
    home.play(lambda: home.task(task).archived, home.dispatcher(), watchdog)
    assert (home.task(task).status, home.starts()) == (Status.COMPLETED, [task])


@pytest.mark.parametrize(
    "what", [":", ": > $FAIRLEAD_RUN_DIR", "ln -s /tmp $FAIRLEAD_RUN_DIR", "mkdir $FAIRLEAD_RUN_DIR"]
)
def test_an_agent_that_kills_its_supervisor_is_lost_once(home: Home, what: str) -> None:
    """Whatever it did to its directory before: nobody saw its end, and it is not started again."""
    home.configure(intervals={"start_grace": 0.5})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(home.counted(f"rm -rf $FAIRLEAD_RUN_DIR; {what}; kill -9 $PPID; sleep 60"))
    following = home.submit(home.counted())
    home.play(lambda: home.is_over(following), dispatcher, watchdog)
    assert [home.task(one).status for one in (task, following)] == [Status.LOST, Status.COMPLETED]
    assert home.starts() == [task, following]


def test_what_a_vanished_run_left_to_others_has_no_supervisor(home: Home) -> None:
    """Directory gone, supervisor and spawner killed: whoever adopts its processes is neither asked nor ended."""
    task, watchdog = vanish(home, "rm -rf $(dirname $FAIRLEAD_RUN_DIR)", LONG)
    [agent] = [one for one in marked("FAIRLEAD_TASK_ID", task) if parent_of(one) not in marked_pids(task)]
    supervisor = parent_of(agent)
    spawner = read_stat(supervisor)
    assert spawner
    os.kill(spawner.parent, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: parent_of(agent) not in (supervisor, spawner.parent), "somebody adopts it")
    home.play(lambda: home.is_over(task), None, watchdog)
    assert home.task(task).status is Status.LOST
    assert not marked("FAIRLEAD_TASK_ID", task)
    assert home.store.locks() == []


def test_a_start_that_nobody_answers_for_is_not_recorded(home: Home) -> None:
    """A run whose supervisor has just gone is left to the next look."""
    task, watchdog = vanish(home, "true", "true")
    [lock] = home.store.locks()
    eventually(lambda: find_supervisor(lock.lock_id) is None, "it ends")
    watchdog.runs._note_vanished(home.task(task), lock)
    assert home.task(task).status is Status.CLAIMED


def parent_of(process: ProcessId) -> int:
    stat = read_stat(process.pid)
    assert stat
    return stat.parent


def marked_pids(task: str) -> set[int]:
    return {one.pid for one in marked("FAIRLEAD_TASK_ID", task)}


def test_a_supervisor_that_came_and_said_nothing_is_ended_after_the_lease(home: Home) -> None:
    """It holds the run directory and hangs before it could announce itself: the run is taken back and started anew."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 0.5}, intervals={"start_grace": 0.01})
    dispatcher, hasty = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit(home.counted())
    dispatcher.run_once()
    command = ["flock", home.run_dir(home.task(task)), "sh", "-c", f"touch {home.work}/held; sleep 1000"]
    home.services.append(subprocess.Popen(command, env=home.environ))
    eventually(lambda: Path(home.work, "held").exists(), "somebody lives in the directory")
    hasty.run_once()
    assert home.task(task).status is Status.CLAIMED
    home.play(lambda: home.task(task).status is Status.QUEUED, None, hasty)
    assert home.log("stuck_start", task=task)
    home.configure()
    home.play(lambda: home.is_over(task), home.dispatcher(), home.watchdog())
    assert home.starts() == [task]


def test_a_busy_store_stops_the_look(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's trouble is everybody's: it is not mistaken for one run's."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(LONG)
    dispatcher.run_once()
    home.beats(task)
    with monkeypatch.context() as patch:
        patch.setattr(watchdog.runs.store, "started", _busy)
        with pytest.raises(StoreBusyError):
            watchdog.runs.look()
    assert home.log("look_failed") == []
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING


def _busy(*_: object, **__: object) -> None:
    raise StoreBusyError


def test_a_run_that_names_no_supervisor_has_not_spoken_for_itself(home: Home) -> None:
    """Somebody wrote `running` into meta.json by hand: nobody is recorded as its supervisor for that."""
    dispatcher, watchdog = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit()
    dispatcher.run_once()
    run_dir, meta = home.run_dir(home.task(task)), home.meta(task)
    meta.status = Status.RUNNING
    write_meta(run_dir, meta, synced=False)
    home.operations().cancel(task, by="ann")
    with rundir.only_inhabitant(run_dir):
        watchdog.run_once()
        assert home.task(task).status is Status.CLAIMED


def test_the_lease_of_a_lock_that_passed_on_is_not_shown(home: Home) -> None:
    """A renewal that comes too late is refused and logged, and the mirror stays the new holder's."""
    _, _, watchdog = begin(home)
    [lock] = home.store.locks()
    mirror = Path(home.paths.locks, "user_ann.json")
    before = mirror.read_text("utf-8")
    watchdog.runs._renew(replace(lock, lock_id="old_1", expires_at=0))
    assert mirror.read_text("utf-8") == before
    assert [event.detail["lock_id"] for event in home.store.events() if event.event == "refused"] == ["old_1"]


def test_a_known_supervisor_answers_for_a_directory_that_was_replaced(home: Home) -> None:
    """Nobody lives in the new one yet: the run is alive all the same."""
    task, _, watchdog = begin(home)
    supervisor = home.supervisor_of(task)
    os.kill(supervisor.pid, signal.SIGSTOP)  # it would move in
    run_dir = home.run_dir(home.task(task))
    os.rename(run_dir, f"{home.path}/away")
    os.mkdir(run_dir)
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    kill(supervisor)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_supervisor_that_looks_after_another_run_answers_for_nothing(home: Home, how: str) -> None:
    """The end was in the directory that somebody took away: nobody can tell it any more, and nobody waits for it."""
    task, _, watchdog = begin(home)
    kill(home.supervisor_of(task))
    run_dir = home.run_dir(home.task(task))
    with gone_on(home, task) as supervisor:
        shutil.rmtree(run_dir)
        if how == "replaced":
            os.mkdir(run_dir)
        watchdog.run_once()
        assert home.task(task).status is Status.LOST
        assert is_alive(supervisor)


# ---------------------------------------------------------------------- spoilt files

SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "garbage": lambda _: b"\xff\x00 garbage",
    "no object": lambda _: b"[1, 2]",
    "wrong types": lambda data: data.replace(b'"attempt": 1', b'"attempt": "one"'),
    "missing fields": lambda _: b'{"status": "completed"}',
}


def spoil(home: Home, task: str, kind: str) -> None:
    """Ruin a run's meta.json."""
    path = Path(home.run_dir(home.task(task)), "meta.json")
    data = SPOILT[kind](path.read_bytes())
    assert data != path.read_bytes()
    path.write_bytes(data)


@pytest.mark.parametrize("kind", SPOILT)
def test_a_meta_json_that_is_spoilt_while_it_runs_is_mended(home: Home, kind: str) -> None:
    """The supervisor lives, so the run is alive; the next beat writes the file anew, and the end is seen."""
    task, dispatcher, watchdog = begin(home)
    spoil(home, task, kind)
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.COMPLETED


@pytest.mark.parametrize("kind", SPOILT)
def test_a_meta_json_that_is_spoilt_after_the_end_means_lost(home: Home, kind: str) -> None:
    """Nobody can tell any more how it ended: that is no success. Others are recorded as ever."""
    task, dispatcher, watchdog = begin(home)
    other = home.submit("exit 4", user="bob")
    dispatcher.run_once()
    Path(home.path, "go").touch()
    eventually(lambda: home.meta(task).ended and home.meta(other).ended, "both end")
    eventually(lambda: not is_alive(home.supervisor_of(task)), "its supervisor is gone")
    spoil(home, task, kind)
    home.play(lambda: home.is_over(task, other), None, watchdog)
    assert home.task(task).status is Status.LOST
    assert outcome_of(home, other).exit_code == 4
    assert home.store.locks() == []


def test_a_removed_run_directory_ends_with_its_supervisor(home: Home) -> None:
    """As long as the supervisor lives so does the run; when it is killed, its end is lost and its user free."""
    task, dispatcher, watchdog = begin(home)
    supervisor = home.supervisor_of(task)
    os.kill(supervisor.pid, signal.SIGSTOP)  # it would make the directory anew
    shutil.rmtree(home.run_dir(home.task(task)))
    for _ in range(3):
        watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    kill(supervisor)
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.LOST
    assert home.store.locks() == []


def test_a_run_without_directory_can_be_cancelled(home: Home) -> None:
    """Its supervisor finds the note in the new directory that it makes."""
    task, dispatcher, watchdog = begin(home)
    shutil.rmtree(home.run_dir(home.task(task)))
    home.operations().cancel(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.CANCELLED
    assert len(home.log("asked_to_stop", task=task)) >= 1


def test_a_silent_run_without_directory_has_its_lease_and_no_more(home: Home) -> None:
    """Nothing of it can be felt, so after the lease it is ended, supervisor and all."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 0.5})
    task, _, watchdog = begin(home)
    supervisor = home.supervisor_of(task)
    shutil.rmtree(home.run_dir(home.task(task)))
    os.kill(supervisor.pid, signal.SIGSTOP)
    home.play(lambda: home.is_over(task), None, watchdog)
    assert (outcome_of(home, task).status, outcome_of(home, task).reason) == (Status.FAILED, "hang")
    assert not is_alive(supervisor)


def test_a_removed_task_json_concerns_nobody_else(home: Home) -> None:
    """The supervisor knows its limits; the watchdog notes once that it does not, and records the others' ends."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(LONG, user="ann")
    dispatcher.run_once()
    home.beats(task)
    Path(home.run_dir(home.task(task)), "task.json").unlink()
    other = home.submit(user="bob")
    home.play(lambda: home.is_over(other), dispatcher, watchdog)
    for _ in range(3):
        watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    assert len(home.log("no_time_limit_known", task=task)) == 1


def test_a_run_in_an_unthinkable_state_concerns_nobody_else(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where even looking fails it is logged, and the others are looked at."""
    task, dispatcher, watchdog = begin(home, user="ann")
    real = watchdog.runs.examiner.examine

    def examine(one: Task, *rest: Any, **named: Any) -> verdict.Verdict:  # noqa: ANN401 - whatever it takes
        if one.id == task:
            raise OSError("test")
        return real(one, *rest, **named)

    monkeypatch.setattr(watchdog.runs.examiner, "examine", examine)
    other = home.submit(user="bob")
    home.play(lambda: home.is_over(other), dispatcher, watchdog)
    assert home.log("look_failed", task=task)
    assert home.task(task).status is Status.RUNNING
