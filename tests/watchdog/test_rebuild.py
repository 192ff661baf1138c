"""A new store from the files: nothing is lost, nothing runs twice, whoever is killed on the way."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import apsw
import pytest
from tests.proof.evidence import Process
from tests.proof.processes import is_alive, kill
from tests.support.crashing import crash
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.base.errors import RefusedError
from fairlead.base.logs import open_log
from fairlead.conductor import rundir
from fairlead.queue import instance as presence
from fairlead.queue.accepted import Accepted
from fairlead.queue.archive import Archive
from fairlead.queue.instance import InUseError, StoreMissingError
from fairlead.queue.operations import Submitting
from fairlead.queue.states import Status
from fairlead.queue.task import Changes
from fairlead.watchdog import rebuild as module
from fairlead.watchdog.rebuild import Rebuild, Rebuilt, StoreThereError

LONG = "until [ -e go ]; do sleep 0.02; done"


def lose_store(home: Home, *endings: str) -> None:
    """Remove the store, or what of it is named, after everybody has let go of it."""
    home.clear_opened()
    for ending in endings or ("", "-wal", "-shm"):
        Path(home.paths.store + ending).unlink(missing_ok=True)


def rebuild(home: Home, *, replace: bool = False) -> Rebuilt:
    """Make the store anew."""
    home.clear_opened()
    return Rebuild(home.paths, home.environ, open_log(home.paths.log_file, "rebuild")).run(replace=replace)


def running(home: Home, user: str = "ann", script: str = LONG) -> str:
    """A task that runs."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(home.counted(script), user=user)
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    home.beats(task)
    return task


def end(family: list[Process]) -> None:
    """Kill these, and see that they are gone."""
    for process in family:
        kill(process)
    eventually(lambda: not any(map(is_alive, family)), "all are gone")


# ---------------------------------------------------------------------- the whole story

KILLS = [
    ("fairlead.watchdog.rebuild:Rebuild._waiting", "after"),
    ("fairlead.queue.sqlite.keeping:Keeping.restore", "before"),
    ("fairlead.queue.sqlite.keeping:Keeping.restore", "after"),
    ("fairlead.queue.sqlite.keeping:Keeping.reserve_tokens", "after"),
    ("fairlead.watchdog.rebuild:sync_file", "after"),
    ("fairlead.watchdog.rebuild:sync_directory", "before"),
]


class Story:
    """An instance with a task in every state, as it was when the store was lost."""

    def __init__(self, home: Home) -> None:
        self.home = home
        home.configure(slots={"max": 3}, limits={"start_attempts": 3})
        daemon, watchdog = home.up()
        operations = home.operations()
        self.done = home.submit(home.counted(), user="early")
        self.failed = home.submit(home.counted("exit 5"), user="early")
        self.twice = home.submit(f"echo x >> {home.work}/retried; test -e {home.work}/mended", user="retrier")
        home.wait_over_for_good(self.done, self.failed, self.twice)
        self.runs = [home.submit(home.counted(LONG), user=f"runner{number}") for number in range(3)]
        for one in self.runs:
            home.wait_status(one, Status.RUNNING)
        self.queued = [home.submit(home.counted(), user="waiter", title=f"number {number}") for number in range(5)]
        self.changed = home.submit(home.counted(), user="waiter", priority="low")
        operations.change(self.changed, 1, Changes(priority=0, title="now urgent"), by="ann")
        self.later = home.submit(home.counted(), user="planner", run_at="+1d")
        self.cancelled = home.submit(home.counted(), user="waiter")
        operations.cancel(self.cancelled, by="ann")
        operations.retry(self.twice, by="ann")
        home.stop(daemon, watchdog, number=signal.SIGKILL)
        self.supervisors = [home.supervisor_of(one) for one in self.runs]
        self.before = {task.id: task for task in home.tasks()}

    @property
    def waiting(self) -> list[str]:
        """What still has to run, or runs."""
        return [*self.runs, *self.queued, self.changed, self.twice]

    def check_restored(self) -> None:
        """Every task is known again as it was."""
        home = self.home
        for one, before in self.before.items():
            task = home.task(one)
            assert task.status is before.status, one
            for name in ("user", "title", "priority", "prompt"):
                assert getattr(task.spec, name) == getattr(before.spec, name), (one, name)
            # A time that is an offset is counted from the task's own id.
            assert abs((task.spec.run_at or 0) - (before.spec.run_at or 0)) < 60_000
        assert [is_alive(one) for one in self.supervisors] == [True] * 3
        order = [task.id for task in home.tasks() if task.id in self.queued]
        assert order == self.queued

    def check_end(self) -> None:
        """Everything ends as it should, and was started once."""
        home = self.home
        for name in ("go", "work/mended"):
            Path(home.path, name).touch()
        ended = home.wait_over_for_good(*self.waiting)
        assert {task.status for task in ended} == {Status.COMPLETED}
        assert home.starts() == sorted({self.done, self.failed, *self.waiting} - {self.twice})
        assert Path(home.work, "retried").read_text("utf-8") == "x\nx\n"
        assert home.task(self.failed).status is Status.FAILED
        assert home.task(self.cancelled).status is Status.CANCELLED
        assert home.task(self.later).status is Status.QUEUED


def test_a_lost_store_is_rebuilt_though_the_rebuild_is_killed(home: Home) -> None:
    """Queued, running, retried, changed, delayed, cancelled and archived tasks are all there, and each runs once."""
    story = Story(home)
    log = Path(home.paths.store + "-wal")
    left_behind = log.read_bytes()
    assert len(left_behind) > 10_000
    lose_store(home)
    # The file alone was removed: its log stays behind, and must not be taken for the new file's.
    log.write_bytes(left_behind)
    for name in ("daemon", "watchdog"):
        assert "fairlead rebuild" in home.cli(name, code=5).stderr
    for place, when in KILLS:
        crash(home, "rebuild", place, when)
        if when == "before" and place.endswith("sync_directory"):
            break
        assert not os.path.exists(home.paths.store)
    os.unlink(home.paths.store)
    log.write_bytes(left_behind)
    home.cli("rebuild")
    with apsw.Connection(home.paths.store) as db:
        assert db.pragma("integrity_check") == "ok"
    # It is the new one: the old log would have brought back the old one, whole.
    assert "rebuilt" in {event.event for event in home.store.events()}
    story.check_restored()
    home.up()
    story.check_end()


def test_a_rebuilt_line_goes_by_when_tasks_could_run(home: Home) -> None:
    """A dated task that became due does not come before those that could run earlier."""
    dated = home.submit(run_at="+1s")
    waiting = home.submit()
    due = home.task(dated).spec.run_at or 0
    eventually(lambda: time.time() * 1000 > due, "its time does not come")
    lose_store(home)
    rebuild(home)
    assert [task.id for task in home.tasks()] == [waiting, dated]


def test_the_old_store_is_kept_when_it_is_replaced(home: Home) -> None:
    """Without --replace a store that is there is left alone; with it the old one is put aside, whole."""
    task = home.submit()
    home.clear_opened()
    with pytest.raises(StoreThereError):
        rebuild(home)
    assert home.task(task).status is Status.QUEUED
    home.cli("rebuild", code=5)
    report = rebuild(home, replace=True)
    assert report.restored == {"queued": 1}
    assert report.aside is not None
    with apsw.Connection(report.aside) as db:
        assert db.execute("SELECT id FROM tasks").fetchall() == [(task,)]
    assert [one.id for one in home.tasks()] == [task]


def test_killed_while_it_replaces_the_store_nobody_starts_on_half_of_it(home: Home) -> None:
    """The old file goes before its log: without it services refuse, and the next rebuild does it all."""
    home.submit(run_at="+1d")
    daemon = home.start("daemon")
    home.stop(daemon, number=signal.SIGKILL)
    home.clear_opened()
    crash(home, "rebuild --replace", "fairlead.watchdog.rebuild:os.rename")
    assert not os.path.exists(home.paths.store)
    home.cli("daemon", code=5)
    assert rebuild(home).restored == {"queued": 1}


# ---------------------------------------------------------------------- alone


def test_a_rebuild_is_refused_while_services_run(home: Home) -> None:
    """They would go on working with the old store."""
    home.submit()
    home.clear_opened()
    service = home.start("watchdog")
    assert f"with pid {service.pid}" in home.cli("rebuild", "--replace", code=5).stderr


def test_a_rebuild_is_refused_while_a_command_works_with_the_store(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever submits meanwhile would be acknowledged by a store that is about to be put aside."""
    monkeypatch.setattr(presence.Presence.alone, "__defaults__", (0.1,))
    home.submit()
    build = Rebuild(home.paths, home.environ, open_log(home.paths.log_file, "rebuild"))
    with pytest.raises(InUseError):
        build.run(replace=True)
    home.clear_opened()
    assert build.run(replace=True).restored == {"queued": 1}


# ---------------------------------------------------------------------- runs


def test_a_user_whose_last_task_ended_and_whose_next_runs_is_restored_with_both(home: Home) -> None:
    """The first one's end was recorded but not archived when the store was lost: it is recorded again, not run."""
    dispatcher = home.dispatcher()
    first, second = home.submit(home.counted()), home.submit(home.counted(LONG))
    dispatcher.run_once()
    eventually(lambda: home.meta(first).ended, "the first ends")
    crash(home, "watchdog", "fairlead.queue.archive:Archive.write", "before")
    dispatcher.run_once()
    home.supervisor_of(second)
    dispatcher.close()
    lose_store(home)
    assert rebuild(home).restored == {"running": 2}
    home.task(second)
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    home.play(lambda: home.is_over(first), dispatcher, watchdog)
    assert home.task(second).status is Status.RUNNING
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(second), dispatcher, watchdog)
    assert home.starts() == sorted([first, second])
    assert {home.task(one).status for one in (first, second)} == {Status.COMPLETED}


def test_two_runs_of_one_user_are_restored(home: Home) -> None:
    """They were started while serialization was off; it is on now, and nothing third starts beside them."""
    home.configure(per_user_serialization={"enabled": False})
    dispatcher = home.dispatcher()
    ids = [home.submit(home.counted(LONG)) for _ in range(2)]
    dispatcher.run_once()
    for one in ids:
        home.supervisor_of(one)
    dispatcher.close()
    lose_store(home)
    home.configure()
    assert rebuild(home).restored == {"running": 2}
    third = home.submit(home.counted())
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    for _ in range(3):
        watchdog.run_once()
        dispatcher.run_once()
    assert home.task(third).status is Status.QUEUED
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(*ids, third), dispatcher, watchdog)
    assert home.starts() == sorted([*ids, third])


def test_the_archive_beats_what_is_left_of_a_run(home: Home) -> None:
    """The task is archived as completed, its directory was not put away and is spoilt: it is not lost for that."""
    dispatcher = home.dispatcher()
    task = home.submit(home.counted(), idempotent=True)
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    crash(home, "watchdog", "fairlead.queue.accepted:Accepted.remove", "before")
    Path(home.run_dir(home.task(task)), "meta.json").write_bytes(b"{")
    dispatcher.close()
    lose_store(home)
    assert rebuild(home).restored == {"completed": 1}
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    for _ in range(3):
        watchdog.run_once()
        dispatcher.run_once()
    assert home.task(task).status is Status.COMPLETED
    assert home.starts() == [task]
    watchdog.retention.prune()
    home.assert_tidy()


def test_claims_that_never_started_wait_again(home: Home) -> None:
    """Their directories are put away, and the numbers of their attempts are not given out again."""
    given_back, claimed = home.submit(home.counted()), home.submit(home.counted(), user="bob")
    for _ in range(2):
        crash(home, "daemon", "fairlead.conductor.launcher:ProcessLauncher.launch", "before")
    assert home.task(given_back).attempt == 2
    lose_store(home)
    assert rebuild(home).restored == {"queued": 2}
    assert home.task(given_back).attempt == 2
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: home.is_over(given_back, claimed), dispatcher, watchdog)
    assert {home.task(one).status for one in (given_back, claimed)} == {Status.COMPLETED}
    assert home.starts() == sorted([given_back, claimed])


def test_a_living_run_whose_meta_json_is_spoilt_is_not_guessed_at(home: Home) -> None:
    """The rebuild is refused with the pids, and the old store stays as it was."""
    task = running(home)
    supervisor = home.supervisor_of(task)
    os.kill(supervisor.pid, signal.SIGSTOP)
    Path(home.run_dir(home.task(task)), "meta.json").write_bytes(b"{")
    with pytest.raises(RefusedError, match="are alive"):
        rebuild(home, replace=True)
    assert home.task(task).status is Status.RUNNING
    os.kill(supervisor.pid, signal.SIGCONT)
    home.beats(task)
    assert rebuild(home, replace=True).restored == {"running": 1}


def test_a_living_run_without_a_directory_is_not_taken_for_waiting(home: Home) -> None:
    """It would be run a second time; its supervisor makes the directory anew, and then it can be rebuilt."""
    task = running(home)
    supervisor = home.supervisor_of(task)
    os.kill(supervisor.pid, signal.SIGSTOP)
    shutil.rmtree(home.run_dir(home.task(task)))
    with pytest.raises(RefusedError, match="there is no run directory: its supervisor makes it anew"):
        rebuild(home, replace=True)
    os.kill(supervisor.pid, signal.SIGCONT)
    home.beats(task)
    assert rebuild(home, replace=True).restored == {"running": 1}


@pytest.mark.parametrize("how", ["task.json names the lock", "nothing names it", "it names nonsense"])
def test_a_dead_run_whose_meta_json_is_spoilt_is_lost(home: Home, how: str) -> None:
    """Nobody can tell how it ended, so the watchdog calls it lost; several of them do not get in each other's way."""
    ids = [running(home, user) for user in ("ann", "bob")]
    for one in ids:
        family = [home.supervisor_of(one), *(Process(*process) for process in home.meta(one).processes)]
        end(family)
        run_dir = Path(home.run_dir(home.task(one)))
        (run_dir / "meta.json").unlink()
        if how == "nothing names it":
            (run_dir / "task.json").unlink()
        elif how == "it names nonsense":
            orders = json.loads((run_dir / "task.json").read_text("utf-8"))
            orders["env"]["FAIRLEAD_LOCK_ID"] = "nonsense"
            (run_dir / "task.json").write_text(json.dumps(orders), "utf-8")
    lose_store(home)
    assert rebuild(home).restored == {"running": 2}
    watchdog = home.watchdog()
    home.play(lambda: home.is_over(*ids), None, watchdog)
    assert {home.task(one).status for one in ids} == {Status.LOST}
    watchdog.run_once()
    assert home.store.locks() == []


def test_of_several_attempts_the_last_counts(home: Home) -> None:
    """An earlier attempt's directory that was not put away yet does not hide the later one."""
    task = running(home)
    active = home.run_dir(home.task(task))
    earlier = active.removesuffix(".1") + ".0"
    shutil.copytree(active, earlier)
    lose_store(home)
    assert rebuild(home).restored == {"running": 1}
    assert home.task(task).attempt == 1


def test_a_record_of_a_later_attempt_hides_an_old_run(home: Home) -> None:
    """A retried task whose first run's directory was not put away waits; it does not run."""
    dispatcher = home.dispatcher()
    task = home.submit("exit 1")
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    crash(home, "watchdog", "fairlead.watchdog.archiving:Archiving.tidy", "before")
    home.operations().retry(task, by="ann")
    [(_, _, path)] = Accepted(home.paths.accepted).records()
    record = json.loads(Path(path).read_text("utf-8"))
    Path(path).write_text(json.dumps(record | {"attempt": 2}), "utf-8")
    dispatcher.close()
    lose_store(home)
    assert rebuild(home).restored == {"queued": 1}


# ---------------------------------------------------------------------- what cannot be read


def test_what_cannot_be_read_is_told_and_left(home: Home) -> None:
    """Strays, spoilt records and files: each is named with its reason, none is touched, the rest is restored."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    done = home.submit()
    home.play(lambda: home.task(done).archived, dispatcher, watchdog)
    waiting = home.submit(run_at="+1d")
    orphan = running(home, "bob")
    dispatcher.close()
    accepted, archive = Accepted(home.paths.accepted), Archive(home.paths.archive)
    spoilt = {
        os.path.join(home.paths.accepted, waiting[:11], "20260101-000000000-aaaaaaaaaa.json"): b"{",
        os.path.join(home.paths.accepted, waiting[:11], "Notes.txt"): b"not a task",
        archive.path("20260101-000000000-bbbbbbbbbb"): b"[]",
        archive.path("20260101-000000000-cccccccccc"): Path(archive.path(done)).read_bytes(),
        os.path.join(home.paths.conductor, "default", "active", "file"): b"",
    }
    for path, data in spoilt.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).write_bytes(data)
    stray = os.path.join(home.paths.conductor, "default", "active", "notes")
    os.mkdir(stray)
    for one, _, path in accepted.files():
        if one == orphan:
            os.unlink(path)
    kill(home.supervisor_of(orphan))
    lose_store(home)
    done_again = home.cli("rebuild", "--json", code=1)
    told = {os.path.basename(path): why for path, why in json.loads(done_again.stdout)["unreadable"]}
    assert told.pop(f"{orphan}.1") == "its task has no accepted file"
    assert told.pop("notes") == told.pop("file") == "it is no run directory"
    assert "1 problem" in told.pop("20260101-000000000-aaaaaaaaaa.json")
    assert told.pop("20260101-000000000-cccccccccc") == f"it tells of another task, {done}"
    assert list(told) == ["20260101-000000000-bbbbbbbbbb"]
    assert all(os.path.exists(path) for path in (*spoilt, stray))
    assert {task.id: task.status for task in home.tasks()} == {done: Status.COMPLETED, waiting: Status.QUEUED}


def test_a_directory_of_an_archived_task_is_no_riddle(home: Home) -> None:
    """Its accepted file is gone because it is archived; the directory is put away later."""
    dispatcher = home.dispatcher()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    crash(home, "watchdog", "fairlead.queue.accepted:Accepted.remove", "after")
    dispatcher.close()
    lose_store(home)
    report = rebuild(home)
    assert (report.restored, report.unreadable) == ({"completed": 1}, [])
    home.watchdog().run_once()
    home.assert_tidy()


def test_many_archived_tasks_are_restored_in_portions(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, one commit holds so many; history and numbers are theirs again."""
    monkeypatch.setattr(module, "PORTION", 2)
    ids = home.submit_all([home.document(user=f"user{number}") for number in range(5)])
    for one in ids:
        home.operations().cancel(one, by="ann")
    lose_store(home)
    assert rebuild(home).restored == {"cancelled": 5}
    assert sorted(task.id for task in home.tasks()) == sorted(ids)
    assert all(task.archived for task in home.tasks())


def test_tokens_only_grow_over_a_rebuild(home: Home) -> None:
    """Whoever held a lock before is fenced off afterwards, whatever it may have been given."""
    task = running(home)
    before = home.task(task).token
    lose_store(home)
    rebuild(home)
    lock = home.store.acquire("user:zoe", task_id="x", holder=home.store.locks()[0].holder, now=1, lease=1.0)
    assert lock is not None
    assert lock.token > before + module.TOKEN_GAP - 1
    assert list(rundir.all_active(home.paths.conductor)) == [home.run_dir(home.task(task))]


def test_a_file_that_was_not_moved_on_tells_of_its_task(home: Home) -> None:
    """Its submitter died between commit and move: the run is known again, and the daemon does not take it in anew."""
    task = running(home)
    accepted = next(path for known, _, path in Accepted(home.paths.accepted).files() if known == task)
    os.rename(accepted, os.path.join(home.paths.intake, f"{task}@ann@task.json"))
    lose_store(home)
    assert rebuild(home).restored == {"running": 1}
    Path(home.path, "go").touch()
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert os.listdir(home.paths.intake) == []
    assert home.starts() == [task]


def test_an_archive_without_a_store_is_not_forgotten(home: Home) -> None:
    """Nobody makes an empty store beside it: whoever tries is told how to get the history back."""
    task = home.submit()
    home.operations().cancel(task, by="ann")
    lose_store(home)
    with pytest.raises(StoreMissingError, match="there is an archive: `fairlead rebuild`"):
        home.open()
    assert rebuild(home).restored == {"cancelled": 1}
    assert home.task(task).status is Status.CANCELLED


def test_what_a_submitter_laid_down_before_he_died_is_not_restored(home: Home) -> None:
    """Nobody was told yes, and without a run nothing says that the store had known it."""
    home.open()
    laid = Submitting(home.open(), "ann")._lay("task.json", b'{"prompt": "true"}')
    lose_store(home)
    assert rebuild(home).restored == {}
    assert os.path.exists(laid.path)
