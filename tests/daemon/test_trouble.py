"""What goes wrong on the way to a start: spawners that die, disks that refuse, a store that is away for a while."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.proof.processes import children_of, identify, kill
from tests.support.crashing import crash
from tests.support.instance import NO_POLLS, ROOT, Home
from tests.support.patience import eventually, stays

from fairlead.base.files import SyncFailedError
from fairlead.base.logs import open_log
from fairlead.conductor import rundir
from fairlead.conductor.launcher import ProcessLauncher, SpawnerGoneError
from fairlead.daemon import process
from fairlead.daemon.process import Daemon
from fairlead.queue.errors import StoreBrokenError, StoreBusyError
from fairlead.queue.passes import guarded
from fairlead.queue.sqlite import connection
from fairlead.queue.states import Status

LONG = "until [ -e go ]; do sleep 0.02; done"


class LosingLauncher(ProcessLauncher):
    """A launcher whose spawner dies with the first requests still in its hands."""

    lost = 0

    def launch(self, run_dir: str) -> None:
        """Lose the first request."""
        if self.lost:
            super().launch(run_dir)
            return
        self.lost += 1
        self.start()
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class GoneLauncher(ProcessLauncher):
    """A launcher whose first request finds the spawner gone."""

    refused = 0

    def launch(self, run_dir: str) -> None:
        """Refuse the first request."""
        if not self.refused:
            self.refused += 1
            raise SpawnerGoneError("the spawner is gone: test")
        super().launch(run_dir)


@pytest.mark.parametrize("kind", [LosingLauncher, GoneLauncher])
def test_claims_that_died_with_a_spawner_are_started_anew(home: Home, kind: type[ProcessLauncher]) -> None:
    """They go back to the queue at once, are not counted as tries, and run with the next spawner."""
    home.configure(limits={"start_attempts": 1}, intervals={"poll": 0.05, "start_grace": 3600.0})
    first, dispatcher, watchdog = (
        home.dispatcher(),
        home.dispatcher(kind(home.paths.error_log, home.paths.bells)),
        home.watchdog(),
    )
    running = home.submit(LONG, user="eve")
    home.play(lambda: home.task(running).status is Status.RUNNING, first, watchdog)
    ids = [home.submit(home.counted(), user=user) for user in ("ann", "bob")]
    home.play(lambda: home.is_over(*ids), dispatcher, watchdog)
    assert home.task(running).status is Status.RUNNING
    assert [home.task(one).status for one in ids] == [Status.COMPLETED] * 2
    assert len(home.log("spawner_died")) == 1
    assert home.starts() == sorted(ids)
    reasons = {attempt.error for one in ids for attempt in home.store.attempts(one)}
    assert reasons == {"", "the spawner died before it started"}


def test_after_the_death_of_a_spawner_nothing_spins(home: Home) -> None:
    """Until the next poll nothing is started, so that a spawner that dies each time costs little."""
    home.configure(intervals={"poll": 3600.0})
    dispatcher = home.dispatcher(LosingLauncher(home.paths.error_log, home.paths.bells))
    task = home.submit()
    for _ in range(5):
        dispatcher.run_once()
    assert home.task(task).status is Status.QUEUED
    assert len(home.store.attempts(task)) == 1


def test_the_death_of_a_spawner_wakes_the_daemon(home: Home) -> None:
    """Although it polls once an hour, it hears of it at once."""
    home.configure(**NO_POLLS)
    daemon = home.start("daemon")
    task = home.submit(LONG)
    supervisor = home.supervisor_of(task)
    [spawner] = [one for one in children_of(daemon.pid) if one.pid != supervisor.pid]
    kill(spawner)
    home.logged("spawner_died")


def test_tries_that_were_nobodys_fault_do_not_count_later(home: Home) -> None:
    """One start was lost with a spawner, one failed: with two tries allowed the task gets another."""
    home.configure(limits={"start_attempts": 2}, intervals={"poll": 3600.0})
    dispatcher = home.dispatcher(LosingLauncher(home.paths.error_log, home.paths.bells))
    task = home.submit()
    dispatcher.run_once()
    dispatcher.run_once()
    assert (len(home.store.attempts(task)), home.task(task).status) == (1, Status.QUEUED)
    dispatcher._start_after = 0.0  # as if the poll had come
    spoilt = Path(home.paths.conductor, "default")
    shutil.rmtree(spoilt)
    spoilt.touch()
    dispatcher.run_once()
    assert (len(home.store.attempts(task)), home.task(task).status) == (2, Status.QUEUED)
    spoilt.unlink()
    home.play(lambda: home.is_over(task), dispatcher, home.watchdog())
    assert home.task(task).status is Status.COMPLETED


def test_a_killed_spawner_is_noticed_and_its_supervisors_go_on(home: Home) -> None:
    """The daemon hears of the death at once and starts another for the next task; runs of the dead one end well."""
    home.configure(intervals={"poll": 1.0, "watch": 3600.0})
    home.up()
    running = home.submit(home.counted(LONG), user="ann")
    home.wait_status(running, Status.RUNNING)
    spawners = [one for one in home.processes() if b"conductor.spawner" in _command_line(one.pid)]
    supervisor = home.supervisor_of(running)
    victims = [one for one in spawners if one.pid != supervisor.pid]
    assert len(victims) == 1
    kill(victims[0])
    home.logged("spawner_died")
    following = home.submit(home.counted(), user="bob")
    home.wait_over(following)
    assert identify(supervisor.pid) == supervisor
    Path(home.path, "go").touch()
    assert home.wait_over(running)[0].status is Status.COMPLETED
    assert home.starts() == sorted([running, following])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_start_that_the_disk_refuses_is_tried_again_and_then_failed(home: Home) -> None:
    """An error on the way to a run directory gives the claim back; after so many tries the task fails and says why."""
    home.configure(limits={"start_attempts": 2}, projects={"spoilt": {"path": str(home.work)}})
    dispatcher = home.dispatcher()
    Path(home.paths.conductor, "spoilt").touch()
    bob, ann = home.submit(user="bob", project="spoilt"), home.submit(user="ann")
    dispatcher.run_once()
    assert home.task(bob).status is Status.QUEUED
    assert home.task(ann).status is Status.CLAIMED
    dispatcher.run_once()
    ended = home.task(bob)
    assert ended.status is Status.FAILED
    assert ended.outcome
    assert "2 times in a row: its start failed:" in ended.outcome.error
    assert "spoilt" in ended.outcome.error


def test_a_spoilt_place_keeps_no_daemon_from_starting(home: Home) -> None:
    """An abandoned claim whose directory cannot be made is left to the watchdog; others are taken back and started."""
    home.configure(projects={"spoilt": {"path": str(home.work)}}, intervals={"start_grace": 3600.0})
    bob, ann = home.submit(user="bob", project="spoilt"), home.submit(user="ann")
    crash(home, "daemon", "fairlead.queue.sqlite.claiming:Claiming.claim")
    place = Path(home.paths.conductor, "spoilt")
    place.touch()
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: home.is_over(ann), dispatcher, watchdog)
    assert home.log("cannot_take_back", task=bob)
    assert home.log("look_failed", task=bob)
    place.unlink()
    home.play(lambda: home.is_over(bob), dispatcher, watchdog)
    assert home.task(bob).status is Status.COMPLETED


def test_an_old_dispatcher_that_wakes_up_late_finds_its_claim_taken(home: Home) -> None:
    """A claim that the watchdog gave back meanwhile is not started, and its successor is not disturbed."""
    sleeper = home.dispatcher()
    task = home.submit(home.counted())
    sleeper._unstarted = sleeper._claim(set())
    home.configure(intervals={"start_grace": 0.001})
    watchdog = home.watchdog()
    home.play(lambda: home.task(task).status is Status.QUEUED, None, watchdog)
    home.configure()
    second = home.dispatcher()
    second.run_once()
    assert home.task(task).attempt == 2
    sleeper.run_once()
    home.play(lambda: home.is_over(task), second, home.watchdog())
    assert home.task(task).status is Status.COMPLETED
    assert home.starts() == [task]
    assert home.log("refused", what="requeue")


def test_a_file_that_cannot_be_put_away_keeps_no_daemon_from_starting(home: Home) -> None:
    """Its task is in the queue and runs; the file follows when its place is free."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.drop("task.json", home.counted())
    claimed = dispatcher.admission.claim("task.json")
    assert claimed is not None
    stray = Path(home.paths.accepted, claimed.id[:11])
    stray.touch()
    dispatcher = home.dispatcher()
    assert home.log("step_failed", step="take_in_left_files")
    for _ in range(3):
        assert not guarded(dispatcher.steps(), dispatcher.log)
    assert home.task(claimed.id).status is not Status.QUEUED
    stray.unlink()
    home.play(lambda: home.task(claimed.id).archived, dispatcher, watchdog)
    assert home.starts() == [claimed.id]
    watchdog.retention.prune()
    home.assert_tidy()


# ---------------------------------------------------------------------- the store is away


@contextmanager
def busy_store(home: Home) -> Iterator[None]:
    """Another process holds the store's write lock, until the end of the block."""
    script = (
        "import apsw, sys; db = apsw.Connection(sys.argv[1]); db.execute('BEGIN EXCLUSIVE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, home.paths.store]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        yield


def test_while_the_store_is_busy_files_and_results_wait(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions wait in the spool, an end waits in meta.json; both are taken in afterwards, each once."""
    monkeypatch.setattr(connection, "BUSY_MS", 50)
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    running = home.submit(home.counted(LONG), user="ann")
    home.play(lambda: home.task(running).status is Status.RUNNING, dispatcher, watchdog)
    meta = home.meta(running)
    with busy_store(home):
        Path(home.path, "go").touch()
        eventually(lambda: home.meta(running).ended, "the run ends")
        home.drop("dropped.json", home.counted(), user="bob")
        os.utime(Path(home.paths.spool, "dropped.json"), (1, 1))
        dispatcher.look_around = True
        assert not guarded(dispatcher.steps(), dispatcher.log)
        watchdog.look_around = True
        assert not guarded(watchdog.steps(), watchdog.instance.log)
        submitted = home.submit(home.counted(), user="eve")
        assert len(os.listdir(home.paths.intake)) == 2
        assert [task.id for task in home.tasks()] == [running]
    home.play(
        lambda: len(home.tasks()) == 3 and not home.active() and not home.store.unarchived(9), dispatcher, watchdog
    )
    assert {task.status for task in home.tasks()} == {Status.COMPLETED}
    assert submitted in home.starts()
    assert len(home.starts()) == 3
    assert home.task(running).token == meta.token
    assert {event.event for event in home.store.events()}.isdisjoint({"refused"})
    home.assert_tidy()


def test_services_outlive_a_busy_store(home: Home) -> None:
    """As processes, too: they log that steps fail, go on, and take everything in when the store is back."""
    home.configure(**NO_POLLS)
    daemon, watchdog = home.up()
    running = home.submit(home.counted(LONG), user="ann")
    home.wait_status(running, Status.RUNNING)
    with busy_store(home):
        home.drop("dropped.json", home.counted(), user="bob")
        Path(home.path, "go").touch()
        home.logged("step_failed", step="take_in_files")
        home.logged("step_failed", step="record_runs")
    eventually(lambda: len(home.tasks()) == 2 and not home.active(), "all is taken in")
    eventually(lambda: all(task.archived for task in home.tasks()), "all is archived")
    assert (daemon.poll(), watchdog.poll()) == (None, None)
    assert len(home.starts()) == 2


def test_a_reading_only_store_is_waited_for(home: Home) -> None:
    """A store that cannot be written to fails steps, not the daemon; nothing is decided meanwhile."""
    dispatcher = home.dispatcher()
    task = home.submit()
    dispatcher.store.db.run("PRAGMA query_only = 1")
    assert not guarded(dispatcher.steps(), dispatcher.log)
    assert home.task(task).status is Status.QUEUED
    dispatcher.store.db.run("PRAGMA query_only = 0")
    assert guarded(dispatcher.steps(), dispatcher.log)
    assert home.task(task).status is Status.CLAIMED


def test_claims_of_a_pass_that_failed_are_started_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the store goes away between two starts, the claims that were not reached do not wait for their grace."""
    home.configure(projects={"gone": {"path": str(home.path / "nowhere")}}, intervals={"start_grace": 3600.0})
    dispatcher = home.dispatcher()
    ids = [home.submit(user="ann", project="gone"), home.submit(user="bob")]
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.store, "finish", _busy)
        assert not guarded(dispatcher.steps(), dispatcher.log)
    assert [home.task(one).status for one in ids] == [Status.CLAIMED] * 2
    home.play(lambda: home.is_over(*ids), dispatcher, home.watchdog())
    assert [home.task(one).status for one in ids] == [Status.FAILED, Status.COMPLETED]


def _busy(*_: object, **__: object) -> None:
    raise StoreBusyError


@pytest.mark.parametrize("error", [StoreBrokenError, SyncFailedError])
def test_what_cannot_be_trusted_ends_the_process(home: Home, error: type[Exception]) -> None:
    """A broken store or disk is no step's business: nothing more is decided."""
    done: list[str] = []

    def broken() -> None:
        raise error

    def following() -> None:
        done.append("following")

    with pytest.raises(error):
        guarded((broken, following), home.open().log)
    assert done == []


def test_an_unexpected_error_is_logged_with_its_traceback(home: Home) -> None:
    """A bug in one step keeps no other from being done, and can be found afterwards."""
    done: list[str] = []

    def buggy() -> None:
        raise ZeroDivisionError

    def following() -> None:
        done.append("following")

    assert not guarded((buggy, following), home.open().log)
    assert done == ["following"]
    assert "ZeroDivisionError" in home.logged("step_failed", step="buggy")["exception"]


def test_a_broken_store_ends_the_daemon(home: Home) -> None:
    """A file that is no database any more is noticed; the daemon stops instead of guessing."""
    home.submit()
    home.operations()
    home.clear_opened()
    with open(home.paths.store, "r+b") as file:
        file.write(b"this is no database at all " * 300)
    for ending in ("-wal", "-shm"):
        Path(home.paths.store + ending).unlink(missing_ok=True)
    with pytest.raises(StoreBrokenError):
        Daemon(home.paths, home.environ, open_log(home.paths.log_file, "daemon"))


def test_a_daemon_that_polls_hourly_retries_a_failed_pass_soon(home: Home) -> None:
    """After a pass that went wrong the next comes within a second or so, whatever the poll."""
    home.configure(**NO_POLLS)
    home.start("daemon")
    os.rmdir(home.paths.rejected)
    Path(home.paths.rejected).touch()
    Path(home.paths.spool, "bad.txt").write_bytes(b"x")
    home.logged("step_failed", step="take_in_files")
    Path(home.paths.rejected).unlink()
    Path(home.paths.rejected).mkdir()
    eventually(lambda: home.rejected() == ["bad.txt"], "the file is refused", 20.0)
    home.logged("rejected")
    stays(lambda: len(home.log("rejected")) == 1, "it is refused once")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_trouble_of_the_machine_is_no_tasks_fault(home: Home, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """While there is no room for a run, tasks wait, none of the tries counts, and nothing spins."""
    home.configure(limits={"start_attempts": 1}, intervals={"poll": 3600.0})
    dispatcher = home.dispatcher()
    ids = [home.submit(home.counted(), user=user) for user in ("ann", "bob")]
    with monkeypatch.context() as patch:
        patch.setattr(rundir, "create", partial(_no_room, code))
        for _ in range(3):
            dispatcher.run_once()
    assert [home.task(one).status for one in ids] == [Status.QUEUED] * 2
    errors = [attempt.error for one in ids for attempt in home.store.attempts(one)]
    assert errors
    assert all(error.startswith("the machine could not make room for its run: ") for error in errors)
    assert len(errors) <= 2
    assert home.log("no_room_to_start")
    home.play(lambda: home.is_over(*ids), home.dispatcher(), home.watchdog())
    assert home.starts() == sorted(ids)


def _no_room(code: int, *_: object) -> None:
    raise OSError(code, os.strerror(code))


def test_a_daemon_that_cannot_prepare_tries_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dispatched, and nobody is told that it is ready, before what was left half done is put right."""
    monkeypatch.setattr(process, "RETRY", 0.01)
    daemon = Daemon(home.paths, home.environ, open_log(home.paths.log_file, "daemon"))
    tries: list[bool] = []
    real = daemon.dispatcher.reconcile

    def reconcile() -> None:
        tries.append(daemon.instance.store.count_active() == 0)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "test")
        real()

    def stop() -> None:
        daemon.waiter.asked_to_stop = True

    monkeypatch.setattr(daemon.dispatcher, "reconcile", reconcile)
    daemon.run(ready=stop)
    daemon.close()
    assert tries == [True] * 3
    assert len(home.log("step_failed", step="prepare")) == 2


def test_a_file_that_is_written_again_while_it_waits_is_not_taken(home: Home) -> None:
    """It was complete when it was looked at, and is not when its turn comes: it is looked at again."""
    home.configure(spool={"batch": 1}, intervals={"settle": 0.0})
    dispatcher = home.dispatcher()
    for name in ("a.json", "b.json"):
        home.drop(name, user=name[0])
    late = Path(home.paths.spool, "b.json")
    os.utime(Path(home.paths.spool, "a.json"), (1, 1))
    dispatcher.run_once()
    assert dispatcher.waiting_names == ["b.json"]
    with late.open("a", encoding="utf-8") as file:
        file.write(" ")
        file.flush()
        dispatcher.run_once()
        assert (dispatcher.waiting_names, dispatcher.settling) == ([], True)
        assert late.exists()
    dispatcher.run_once()
    assert len(home.tasks()) == 2


def test_files_of_the_dead_do_not_wait_for_a_quiet_spool(home: Home) -> None:
    """What a submitter had laid down before he died is taken in with the files that keep coming."""
    home.configure(intervals={"settle": 0.0})
    dispatcher = home.dispatcher()
    home.drop("first.json", user="ann")
    assert dispatcher.admission.claim("first.json")
    home.drop("second.json", user="bob")
    dispatcher.run_once()
    assert len(home.tasks()) == 2


def test_a_spawner_that_nobody_comes_from_is_left(home: Home) -> None:
    """It was stopped and takes requests all the same: the tasks are not to blame, and another one starts them."""
    home.configure(limits={"start_attempts": 1}, intervals={"start_grace": 0.3, "poll": 0.1, "watch": 0.1})
    daemon, _ = home.up()
    first = home.submit(user="ann")
    home.wait_over(first)
    [spawner] = children_of(daemon.pid)
    os.kill(spawner.pid, signal.SIGSTOP)
    ids = [home.submit(home.counted(), user=user) for user in ("ann", "bob")]
    home.wait_over(*ids)
    assert [home.task(one).status for one in ids] == [Status.COMPLETED] * 2
    assert home.starts() == sorted(ids)
    assert home.log("spawner_left", spawner=spawner.pid)
    kill(spawner)


def test_whoever_removes_the_lock_files_with_their_folder_fails_nobody(home: Home) -> None:
    """It is made anew for the next lock."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    shutil.rmtree(home.paths.locks)
    task = home.submit()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.COMPLETED
    assert home.store.attempts(task)[0].number == 1
