"""What becomes of runs: ends are recorded, the dead are found, locks are freed on evidence."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conductor.runs import FEW_DESCRIPTORS
from tests.proof.evidence import Process
from tests.proof.processes import is_alive, kill
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually
from tests.watchdog.running import LONG, SilentLauncher, begin, outcome_of

from fairlead.base.bell import Listener, is_heard
from fairlead.conductor import verdict
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.meta import read_meta, write_meta
from fairlead.queue.claims import record_ends
from fairlead.queue.states import Status
from fairlead.queue.store import Ended
from fairlead.queue.task import Outcome

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


def test_services_whose_bells_were_tidied_away_hear_again(home: Home) -> None:
    """With their next look around they hang them up anew, and nobody waits for polls any more."""
    home.configure(intervals={"poll": 0.2, "watch": 0.2})
    home.up()
    shutil.rmtree(home.paths.bells)
    eventually(lambda: all(is_heard(home.paths.bells, name) for name in ("daemon", "watchdog")), "both hear")
    assert home.wait_over(home.submit(home.counted()))[0].status is Status.COMPLETED


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


class CrampedLauncher(ProcessLauncher):
    """A launcher whose supervisors find no room to start an agent."""

    def launch(self, run_dir: str) -> None:
        """Look after the run with too few descriptors."""
        subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS, run_dir], check=True, timeout=60)


def test_a_machine_without_room_is_no_fault_of_the_task(home: Home) -> None:
    """It is queued again and not blamed for it, and the daemon is told to start nothing for a moment."""
    home.configure(limits={"start_attempts": 1})
    dispatcher, watchdog = home.dispatcher(CrampedLauncher(home.paths.error_log, home.paths.bells)), home.watchdog()
    bell = Listener(home.paths.bells, "daemon")
    task = home.submit(home.counted())
    dispatcher.run_once()
    home.play(lambda: home.task(task).status is Status.QUEUED, None, watchdog)
    [attempt] = home.store.attempts(task)
    assert attempt.error.startswith("the machine could not make room for its run: the agent could not be started")
    assert attempt.error in bell.take()
    bell.close()
    home.play(lambda: home.is_over(task), home.dispatcher(), watchdog)
    assert (home.task(task).status, home.starts()) == (Status.COMPLETED, [task])


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
