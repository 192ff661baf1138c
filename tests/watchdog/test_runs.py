"""What becomes of runs: ends are recorded, the dead are found, the silent are ended, locks are freed on evidence."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.proof.evidence import Process
from tests.proof.processes import is_alive, kill
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually

from fairlead.base.identity import ProcessId, this_process
from fairlead.conductor import rundir, verdict
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.meta import read_meta, write_meta
from fairlead.conductor.tree import marked
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.queue.claims import record_ends
from fairlead.queue.errors import StoreBusyError
from fairlead.queue.states import Status
from fairlead.queue.store import Ended
from fairlead.queue.task import Outcome, Task
from fairlead.watchdog import pulse, runs
from fairlead.watchdog.watchdog import Watchdog

LONG = "until [ -e go ]; do sleep 0.02; done"


class SilentLauncher(ProcessLauncher):
    """A launcher whose supervisors never come."""

    def launch(self, run_dir: str) -> None:
        """Do nothing."""


def begin(home: Home, script: str = LONG, user: str = "ann", **fields: object) -> tuple[str, Dispatcher, Watchdog]:
    """A task that runs, known to be running, and has beaten."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(script, user=user, **fields)
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    home.beats(task)
    return task, dispatcher, watchdog


def outcome_of(home: Home, task_id: str) -> Outcome:
    """How a task ended."""
    outcome = home.task(task_id).outcome
    assert outcome is not None
    return outcome


# ---------------------------------------------------------------------- ends


def test_an_end_is_recorded_and_the_lock_freed_by_the_ring(home: Home) -> None:
    """Although both services poll once an hour, three tasks of one user run one after the other at once."""
    home.configure(**NO_POLLS)
    home.up()
    ids = [home.submit(home.counted()) for _ in range(3)]
    ended = home.wait_over(*ids)
    assert {task.status for task in ended} == {Status.COMPLETED}
    starts = [task.started_at or 0 for task in ended]
    finishes = [task.finished_at or 0 for task in ended]
    assert all(end <= start for end, start in zip(finishes, starts[1:], strict=False))
    eventually(lambda: home.store.locks() == [], "the lock is free")


def test_the_end_is_recorded_as_the_supervisor_wrote_it(home: Home) -> None:
    """Exit code, error, log tail, result, cost and artifacts are taken over; the lock's release names its evidence."""
    script = f'echo \'{{"cost": 2.5, "n": 1}}\' > "$FAIRLEAD_RESULT"; echo oops >&2; touch {home.path}/made.txt; exit 3'
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(script, artifacts=["made.txt"])
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    ended = outcome_of(home, task)
    assert (ended.status, ended.reason, ended.exit_code) == (Status.FAILED, "exit", 3)
    assert ended.error == "the agent ended with exit code 3"
    assert "oops" in ended.log_tail
    assert ended.result == {"cost": 2.5, "n": 1}
    assert ended.cost == 2.5
    assert ended.artifacts == ("made.txt",)
    assert ended.held > 0
    assert home.store.past_locks(1)[0].evidence == {"written_by": "supervisor"}
    [attempt] = home.store.attempts(task)
    assert (attempt.status, attempt.exit_code) == (Status.FAILED, 3)
    record = json.loads(Path(home.paths.archive, f"{task[:4]}-{task[4:6]}", f"{task}.json").read_text("utf-8"))
    assert record["error"] == ended.error


def test_a_start_and_a_renewal_are_noted(home: Home) -> None:
    """The lock's holder becomes the supervisor, in row and mirror; heartbeats extend the lease."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 2.0})
    task, _, watchdog = begin(home)
    supervisor = home.supervisor_of(task)
    [lock] = home.store.locks()
    assert (lock.holder.pid, lock.holder.start) == (supervisor.pid, supervisor.start)
    mirror = Path(home.paths.locks, "user_ann.json")
    assert json.loads(mirror.read_text("utf-8"))["acquired_by_pid"] == supervisor.pid
    shown = json.loads(mirror.read_text("utf-8"))["expires_at"]
    home.play(lambda: home.store.locks()[0].expires_at > lock.expires_at, None, watchdog)
    assert json.loads(mirror.read_text("utf-8"))["expires_at"] > shown


def test_a_run_that_ended_before_its_start_was_noted_is_complete(home: Home) -> None:
    """A quick run may have ended when the watchdog first looks: its start is recorded with its end."""
    dispatcher = home.dispatcher()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    home.watchdog().run_once()
    done = home.task(task)
    assert done.status is Status.COMPLETED
    assert done.started_at is not None
    assert [event.event for event in home.store.events(task_id=task)] == ["queued", "claimed", "started", "completed"]


def test_a_late_end_with_an_old_token_is_refused_and_logged(home: Home) -> None:
    """Whoever was given up cannot speak for the task any more."""
    task, dispatcher, watchdog = begin(home)
    old = home.task(task)
    supervisor = home.supervisor_of(task)
    kill(supervisor)
    home.play(lambda: home.is_over(task), None, watchdog)
    home.operations().retry(task, by="ann")
    dispatcher.run_once()
    late = Ended(task_id=task, token=old.token, outcome=Outcome(status=Status.COMPLETED, reason="exit"))
    lock = home.store.locks()[0]
    record_ends(watchdog.instance, [(lock, late)])
    assert home.task(task).status is Status.CLAIMED
    assert home.log("refused", task=task, token=old.token)
    refused = [event for event in home.store.events(task_id=task) if event.event == "refused"]
    assert [event.detail["token"] for event in refused] == [old.token]
    assert home.store.locks() == [lock]


# ---------------------------------------------------------------------- deaths


def test_a_killed_supervisor_means_lost(home: Home) -> None:
    """Its agents are gone, its user is free, its successor runs; it is no success, and nobody runs it again."""
    home.configure(intervals={"watch": 0.2})
    home.up()
    lost = home.submit(home.counted("sh -c 'trap \"\" TERM; sleep 1000' & " + LONG))
    home.wait_status(lost, Status.RUNNING)
    eventually(lambda: len(home.meta(lost).processes) >= 2, "the agents are known")
    following = home.submit(home.counted())
    noted = [Process(*one) for one in home.meta(lost).processes]
    kill(home.supervisor_of(lost))
    ended, after = home.wait_over(lost, following)
    assert (ended.status, after.status) == (Status.LOST, Status.COMPLETED)
    assert outcome_of(home, lost).reason == "supervisor_died"
    assert "nobody saw its end" in outcome_of(home, lost).error
    assert not any(map(is_alive, noted))
    assert home.starts() == sorted([lost, following])


def test_another_boot_proves_death(home: Home) -> None:
    """A run of another boot is lost without anybody being asked, with or without its meta.json."""
    with_meta, _, watchdog = begin(home, user="ann")
    without, _, _ = begin(home, user="bob")
    for task in (with_meta, without):
        kill(home.supervisor_of(task))
        meta = home.meta(task)
        meta.boot_id = "another"
        write_meta(home.run_dir(home.task(task)), meta, synced=False)
    Path(home.run_dir(home.task(without)), "meta.json").unlink()
    home.store.db.run("UPDATE locks SET boot_id = 'another'")
    home.play(lambda: home.is_over(with_meta, without), None, watchdog)
    for task in (with_meta, without):
        assert (home.task(task).status, outcome_of(home, task).reason) == (Status.LOST, "reboot")
        assert "the machine went down" in outcome_of(home, task).error
        assert outcome_of(home, task).held == 0.0
        assert outcome_of(home, task).evidence["proof"] == "another boot"


def test_a_claim_of_another_boot_is_given_back(home: Home) -> None:
    """What was only claimed when the machine went down never started: it runs now."""
    dispatcher, watchdog = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit(home.counted())
    dispatcher.run_once()
    meta = home.meta(task)
    meta.boot_id = "another"
    write_meta(home.run_dir(home.task(task)), meta, synced=False)
    home.store.db.run("UPDATE locks SET boot_id = 'another'")
    watchdog.run_once()
    assert home.task(task).status is Status.QUEUED
    home.play(lambda: home.is_over(task), home.dispatcher(), watchdog)
    assert home.starts() == [task]


# ---------------------------------------------------------------------- hangs


def test_a_silent_run_is_ended_after_its_lease(home: Home) -> None:
    """A supervisor that does not beat for its whole lease is killed with all that is below it, then the lock moves."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 1.0})
    task, dispatcher, watchdog = begin(home)
    supervisor, noted = home.supervisor_of(task), [Process(*one) for one in home.meta(task).processes]
    assert noted
    os.kill(supervisor.pid, signal.SIGSTOP)
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    ended = outcome_of(home, task)
    assert (ended.status, ended.reason) == (Status.FAILED, "hang")
    assert "no heartbeat for 1 s" in ended.error
    assert ended.evidence == {"proof": "all processes were killed and seen gone", "left": []}
    assert not is_alive(supervisor)
    assert not any(map(is_alive, noted))
    following = home.submit()
    home.play(lambda: home.is_over(following), dispatcher, watchdog)


def test_a_run_far_beyond_its_limit_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that does not enforce the time limit is ended some time after it, within its lease."""
    monkeypatch.setattr(pulse, "MARGIN", 0.1)
    task, _, watchdog = begin(home, timeout="1s")
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
    home.play(lambda: home.is_over(task), None, watchdog)
    assert (outcome_of(home, task).status, outcome_of(home, task).reason) == (Status.FAILED, "timeout")


def test_without_a_limit_a_beating_run_goes_on(home: Home) -> None:
    """Where the agent has no time limit there is no hard stop."""
    home.configure(agents={"shell": {"command": ["/bin/sh", "-c", "{prompt}"], "timeout": 0}})
    task, _, watchdog = begin(home)
    assert watchdog.runs.pulses.of(home.task(task).token, 0.0).hard_stop == float("inf")


def test_an_end_that_was_written_at_the_last_moment_counts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow supervisor that wrote the end while it was being given up has witnessed it."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 0.5})
    task, _, watchdog = begin(home)
    run_dir = home.run_dir(home.task(task))
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)

    def end_late(lock_id: str, noted: list[ProcessId]) -> list[ProcessId]:
        meta = read_meta(run_dir)
        meta.status, meta.reason, meta.finished_at = Status.COMPLETED, "exit", 1
        write_meta(run_dir, meta, synced=False)
        return verdict.end_leftovers(lock_id, noted)

    monkeypatch.setattr(runs, "end_leftovers", end_late)
    home.play(lambda: home.is_over(task), None, watchdog)
    assert home.task(task).status is Status.COMPLETED


def test_a_pid_that_passed_to_a_stranger_is_not_touched(home: Home) -> None:
    """A supervisor's pid alone proves nothing: whoever has it now, but another start time, is left alone."""
    task, _, watchdog = begin(home)
    stranger = ProcessId(this_process().pid, this_process().start - 1)
    [lock] = home.store.locks()
    assert watchdog.runs._end_tree(lock, None, stranger) == []
    assert home.task(task).status is Status.RUNNING


# ---------------------------------------------------------------------- never started


class SpoilingLauncher(ProcessLauncher):
    """A launcher whose supervisors find no orders."""

    def launch(self, run_dir: str) -> None:
        """Have a supervisor started that cannot read what to do."""
        Path(run_dir, "task.json").write_text("{}", "utf-8")
        super().launch(run_dir)
        eventually(lambda: Path(run_dir, "supervisor.err").exists(), "it has trouble")


def test_a_claim_that_nobody_answers_is_given_back_as_often_as_it_takes(home: Home) -> None:
    """That no supervisor comes says nothing about the task: it is queued again after its grace, and not failed."""
    home.configure(intervals={"start_grace": 0.05}, limits={"start_attempts": 1})
    dispatcher, watchdog = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit(home.counted())
    home.play(lambda: home.task(task).attempt > 3, dispatcher, watchdog)
    errors = {attempt.error for attempt in home.store.attempts(task)[:3]}
    assert errors == {"no supervisor came for it in time"}
    home.configure()
    home.play(lambda: home.is_over(task), home.dispatcher(), home.watchdog())
    assert home.starts() == [task]


def test_a_claim_whose_supervisors_have_trouble_is_given_back_then_failed(home: Home) -> None:
    """After its grace it is queued again; after so many times in a row it fails and says so."""
    home.configure(intervals={"start_grace": 0.05}, limits={"start_attempts": 3})
    dispatcher, watchdog = home.dispatcher(SpoilingLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    ended = home.task(task)
    assert (ended.status, ended.attempt) == (Status.FAILED, 3)
    assert outcome_of(home, task).error == "it could not be started, 3 times in a row: it did not start in time"
    assert [attempt.reason for attempt in home.store.attempts(task)] == ["never_started"] * 3
    watchdog.run_once()
    home.assert_tidy()


def test_within_its_grace_a_claim_is_left_alone(home: Home) -> None:
    """The dispatcher lives and has just asked for a supervisor: that may take a moment."""
    dispatcher, watchdog = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    task = home.submit()
    dispatcher.run_once()
    watchdog.run_once()
    watchdog.run_once()
    assert home.task(task).status is Status.CLAIMED


def test_tries_before_a_real_start_do_not_count(home: Home) -> None:
    """Only tries in a row count: a start in between begins anew."""
    home.configure(intervals={"start_grace": 0.05}, limits={"start_attempts": 2})
    silent, hasty = home.dispatcher(SilentLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    home.configure(limits={"start_attempts": 2})
    real, patient = home.dispatcher(), home.watchdog()
    task = home.submit("exit 1")
    silent.run_once()
    home.play(lambda: home.task(task).status is Status.QUEUED, None, hasty)
    home.play(lambda: home.is_over(task), real, patient)
    home.operations().retry(task, by="ann")
    silent.run_once()
    home.play(lambda: home.task(task).status is Status.QUEUED, None, hasty)
    assert [attempt.reason for attempt in home.store.attempts(task)] == ["never_started", "exit", "never_started"]


def test_a_machine_that_was_renamed_knows_its_runs(home: Home) -> None:
    """What is of this boot is of this machine, whatever it was called then: its death is seen, its user is free."""
    task, _, watchdog = begin(home)
    home.store.db.run("UPDATE locks SET host = 'elsewhere'")
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    kill(home.supervisor_of(task))
    home.play(lambda: home.task(task).status is Status.LOST, None, watchdog)
    assert home.store.locks() == []


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
    task, watchdog = vanish(home, "rm -rf $(dirname $FAIRLEAD_RUN_DIR)", "true")
    eventually(lambda: not marked("FAIRLEAD_TASK_ID", task), "it ends")
    home.configure()
    watchdog = home.watchdog()
    watchdog.hear({f"ended {task}.1"})
    for step in watchdog.steps():
        step()
    assert home.task(task).status is Status.LOST
    assert home.starts() == [task]


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
    home.supervisor_of(task)
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
    home.supervisor_of(task)
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


# ---------------------------------------------------------------------- cancelling


def test_a_queued_task_is_cancelled_at_once(home: Home) -> None:
    """It is archived with the answer, and nothing can bring it back."""
    task = home.submit()
    home.operations().cancel(task, by="ann")
    ended = home.task(task)
    assert (ended.status, ended.archived) == (Status.CANCELLED, True)
    home.dispatcher().run_once()
    home.assert_tidy()


def test_a_claimed_task_is_cancelled_before_it_starts(home: Home) -> None:
    """Nobody waits for a supervisor that need not come; if it comes late it finds nothing to do."""
    launcher = SilentLauncher(home.paths.error_log, home.paths.bells)
    dispatcher, watchdog = home.dispatcher(launcher), home.watchdog()
    task = home.submit(home.counted())
    dispatcher.run_once()
    run_dir = home.run_dir(home.task(task))
    home.operations().cancel(task, by="ann")
    watchdog.run_once()
    assert home.task(task).status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by ann before it started"
    ProcessLauncher.launch(launcher, run_dir)
    following = home.submit(home.counted())
    home.play(lambda: home.is_over(following), home.dispatcher(), watchdog)
    assert home.starts() == [following]
    watchdog.run_once()
    home.assert_tidy()


def test_a_running_task_is_asked_to_stop(home: Home) -> None:
    """The ring reaches the watchdog, the signal the agent, and the end says who wanted it."""
    home.configure(**NO_POLLS)
    home.up()
    task = home.submit(LONG)
    home.wait_status(task, Status.RUNNING)
    home.operations().cancel(task, by="eve")
    [ended] = home.wait_over(task)
    assert ended.status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by eve"
    assert len(home.log("asked_to_stop", task=task)) == 1


def test_a_request_to_stop_survives_the_watchdog(home: Home) -> None:
    """A watchdog that was killed between the note and the signal is no excuse: its successor signals."""
    task, dispatcher, _ = begin(home)
    note = Path(home.run_dir(home.task(task)), rundir.CANCEL)
    note.write_text('{"by": "eve"}', "utf-8")
    home.operations().cancel(task, by="eve")
    home.play(lambda: home.is_over(task), dispatcher, home.watchdog())
    assert home.task(task).status is Status.CANCELLED


def test_a_deaf_agent_is_cancelled_all_the_same(home: Home) -> None:
    """After its grace everything of it is ended by force."""
    task, dispatcher, watchdog = begin(home, f'trap "" TERM; touch {home.work}/deaf; ' + LONG)
    eventually(lambda: Path(home.work, "deaf").exists(), "the agent is deaf")
    home.operations().cancel(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.CANCELLED


def test_a_run_that_cannot_hear_is_cancelled_all_the_same(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor is stopped: some time after it was asked, all of it is killed, long before its lease is over."""
    monkeypatch.setattr(runs, "MARGIN", 0.2)
    home.configure(limits={"grace": 0.0})
    task, dispatcher, watchdog = begin(home)
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
    home.operations().cancel(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by ann; it had to be killed"
    assert home.store.locks() == []


# ---------------------------------------------------------------------- quarantine


def quarantine(home: Home, monkeypatch: pytest.MonkeyPatch, how: str) -> tuple[str, Watchdog]:
    """A run of which something is said to be alive although it was killed: this very process stands in for it."""
    if how == "hang":
        home.configure(per_user_serialization={"lock_timeout_seconds": 2.0})
    task, _, watchdog = begin(home)
    survivor = this_process()
    with monkeypatch.context() as patch:
        patch.setattr(verdict, "end_leftovers", lambda *_: [survivor])
        patch.setattr(runs, "end_leftovers", lambda *_: [survivor])
        if how == "lost":
            kill(home.supervisor_of(task))
        else:
            os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
        home.play(lambda: home.is_over(task), None, watchdog)
    return task, watchdog


@pytest.mark.parametrize("how", ["lost", "hang"])
def test_what_cannot_be_proven_dead_keeps_its_lock(home: Home, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The task has ended, its user's lock is kept and shown, `why` says so, and an operator's word frees it."""
    task, watchdog = quarantine(home, monkeypatch, how)
    assert home.task(task).status is (Status.LOST if how == "lost" else Status.FAILED)
    watchdog.run_once()
    [lock] = home.store.locks()
    assert lock.state == "quarantined"
    assert not read_meta(rundir.finished_dir(home.paths.conductor, "default", task, 1)).lock_released
    assert lock.evidence["left"] == [list(this_process())]
    assert os.path.exists(home.locks_file("ann"))
    following, other = home.submit(user="ann"), home.submit(user="bob")
    dispatcher = home.dispatcher()
    home.play(lambda: home.is_over(other), dispatcher, watchdog)
    assert home.task(following).status is Status.QUEUED
    assert [one.reason for one in home.why(following).obstacles][:2] == ["no_daemon", "quarantined"]
    assert f"task {task}" in home.why(following).obstacles[1].detail
    assert home.log("quarantined", level="warning", task=task)
    refused = home.cli("lock", "release", "ann", code=5)
    assert "--force" in refused.stderr
    home.cli("lock", "release", "ann", "--force")
    home.play(lambda: home.is_over(following), dispatcher, watchdog)
    past = next(one for one in home.store.past_locks(10) if one.task_id == task)
    assert past.evidence["was"] == "quarantined"
    assert past.why.startswith("forced by")


def test_a_quarantine_ends_when_the_last_process_is_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the survivor lives the lock stays; its death is the proof that was missing."""
    _, watchdog = quarantine(home, monkeypatch, "lost")
    watchdog.run_once()
    [lock] = home.store.locks()
    home.quarantine(lock, {"left": [[this_process().pid, 1]]})
    watchdog.run_once()
    assert home.store.locks() == []
    assert not os.path.exists(home.locks_file("ann"))
    assert home.store.past_locks(1)[0].evidence == {"proof": "nothing of the run is alive any more"}


def test_a_quarantine_ends_with_the_boot(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever could not be killed did not outlive the machine."""
    _, watchdog = quarantine(home, monkeypatch, "lost")
    home.store.db.run("UPDATE locks SET boot_id = 'another'")
    watchdog.run_once()
    assert home.store.locks() == []


# ---------------------------------------------------------------------- running again


def test_a_lost_task_that_may_be_repeated_is_run_again(home: Home) -> None:
    """By itself and at once, although the services poll hourly; a person need not be asked."""
    home.configure(intervals={"poll": 3600.0, "watch": 0.2})
    home.up()
    again = f"test -e {home.work}/second && exit 0; touch {home.work}/second; {LONG}"
    task = home.submit(again, idempotent=True)
    home.wait_status(task, Status.RUNNING)
    eventually(lambda: Path(home.work, "second").exists(), "the first attempt is at work")
    kill(home.supervisor_of(task))
    [ended] = home.wait_over_for_good(task)
    assert (ended.status, ended.attempt) == (Status.COMPLETED, 2)
    assert [attempt.status for attempt in home.store.attempts(task)] == [Status.LOST, Status.COMPLETED]


def test_a_task_is_run_again_only_so_often(home: Home) -> None:
    """An idempotent task that is lost each time stays lost at last, and is archived."""
    home.configure(limits={"reruns": 1})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(LONG, idempotent=True)
    lost: list[int] = []

    def is_running_again() -> bool:
        now = home.task(task)
        return now.status is Status.RUNNING and now.attempt not in lost

    for attempt in (1, 2):
        home.play(is_running_again, dispatcher, watchdog)
        kill(home.supervisor_of(task))
        lost.append(attempt)
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    assert home.task(task).status is Status.LOST
    assert len(home.log("run_again", task=task)) == 1


def test_only_losses_in_a_row_count(home: Home) -> None:
    """However often people have retried it for other reasons, a lost task that may be run again is run again."""
    home.configure(limits={"reruns": 1})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    fails = f"test -e {home.work}/enough || exit 1; {LONG}"
    task = home.submit(fails, idempotent=True)
    for _ in range(3):
        home.play(lambda: home.task(task).archived, dispatcher, watchdog)
        home.operations().retry(task, by="ann")
    Path(home.work, "enough").touch()
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    kill(home.supervisor_of(task))
    home.play(lambda: bool(home.log("run_again", task=task)), None, watchdog)


def test_a_task_that_somebody_cancelled_is_not_run_again(home: Home) -> None:
    """Its supervisor dies before it can obey: it is lost, and although it may be run again nobody wants that."""
    task, _, watchdog = begin(home, idempotent=True)
    home.operations().cancel(task, by="ann")
    kill(home.supervisor_of(task))
    home.play(lambda: home.task(task).archived, None, watchdog)
    assert (home.task(task).status, home.task(task).attempt) == (Status.LOST, 1)


def test_a_lock_file_that_cannot_be_removed_keeps_no_end_from_being_recorded(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged; the file that stays is known as a left-over, and goes with a later look."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    ids = [home.submit(user=user) for user in ("ann", "bob")]
    dispatcher.run_once()
    eventually(lambda: all(home.meta(one).ended for one in ids), "both end")
    with monkeypatch.context() as patch:
        patch.setattr(watchdog.instance.locks.files, "drop", _refused)
        watchdog.record_runs()
    assert [home.task(one).status for one in ids] == [Status.COMPLETED] * 2
    assert {line["lock"] for line in home.log("lock_file_stays")} == {"user:ann", "user:bob"}
    home.play(lambda: not any(Path(home.locks_file(user)).exists() for user in ("ann", "bob")), None, watchdog)


def _refused(*_: object) -> None:
    raise PermissionError("test")


def test_a_lost_task_that_says_nothing_stays_lost(home: Home) -> None:
    """It is not run again without a person's word; `retry` is that word."""
    task, dispatcher, watchdog = begin(home, home.counted(LONG))
    kill(home.supervisor_of(task))
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    for _ in range(3):
        watchdog.run_once()
        dispatcher.run_once()
    assert home.task(task).status is Status.LOST
    Path(home.path, "go").touch()
    Path(home.work, f"start-{task}").unlink()
    home.operations().retry(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.COMPLETED


# ---------------------------------------------------------------------- pulses


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """While the machine sleeps runs cannot beat: a lease is counted by looks, not by the clock alone."""
    pulses = pulse.Pulses()
    one = pulses.of(1, 100.0)
    one.hard_stop = 1000.0
    pulses.begin_look(100.0, 5.0)
    pulses.begin_look(106.0, 5.0)
    assert (one.changed, one.hard_stop) == (100.0, 1000.0)
    pulses.begin_look(5111.0, 5.0)
    assert (one.first_seen, one.changed, one.hard_stop) == (5100.0, 5100.0, 6000.0)
    unlimited = pulses.of(2, 5111.0)
    pulses.begin_look(9999.0, 5.0)
    assert unlimited.hard_stop is None
    pulses.keep_only({2})
    assert pulses.of(1, 7.0).first_seen == 7.0


def test_a_beat_counts_when_it_changes() -> None:
    """The time that a heartbeat names is for people; a watchdog sees that its number, or the file's time, has moved."""
    seen = pulse.Pulse(first_seen=0.0)
    assert pulse.feel(seen, (1, 100), 10.0)
    assert not pulse.feel(seen, (1, 100), 20.0)
    assert seen.changed == 10.0
    assert not pulse.is_silent(seen, 20.0, 10.0)
    assert pulse.is_silent(seen, 20.1, 10.0)
    assert pulse.feel(seen, (1, 200), 30.0)
    assert pulse.feel(seen, (2, 200), 40.0)
    assert seen.changed == 40.0


def test_an_end_that_comes_between_two_looks_is_seen(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look finds it running; when its directory is free a moment later, its end is there."""
    task, _, watchdog = begin(home)
    running = home.meta(task)
    Path(home.path, "go").touch()
    eventually(lambda: home.meta(task).ended and not is_alive(home.supervisor_of(task)), "it ends")
    looks = iter([running])
    real = read_meta
    monkeypatch.setattr(verdict, "read_meta", lambda run_dir: next(looks, None) or real(run_dir))
    watchdog.run_once()
    assert home.task(task).status is Status.COMPLETED


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
