"""Locks that nobody answers for: freed on evidence, kept where there is none, and every release says why."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.proof.processes import identify, kill
from tests.support.instance import FAIRLEAD, ROOT, Home
from tests.support.patience import eventually

from fairlead.base.identity import boot_id, host, this_process
from fairlead.conductor.orders import MARKER
from fairlead.queue.errors import StoreBusyError
from fairlead.queue.locks import this_holder
from fairlead.queue.states import Status
from fairlead.watchdog import open_files, stale

LONG = "until [ -e go ]; do sleep 0.02; done"
#: Runs of that user are looked for on the whole machine: no other test must have one.
ZOE = f"zoe-{os.getpid()}"


def foreign(home: Home, data: object = None, user: str = "ann", *, beside: bool = False, age: float = 100.0) -> Path:
    """A lock file of somebody else's, with its metadata inside or beside it."""
    path = Path(home.locks_file(user))
    text = data if isinstance(data, str) else json.dumps(data) if data is not None else ""
    path.write_text("" if beside else text, "utf-8")
    if beside:
        path.with_suffix(".json").write_text(text, "utf-8")
    for one in (path, path.with_suffix(".json")):
        if one.exists():
            os.utime(one, (time.time() - age,) * 2)
    return path


def dead_pid() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


@contextmanager
def holding(home: Home, user: str, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`lock hold` at work."""
    words = [*FAIRLEAD, "lock", "hold", user, "--", *command]
    with subprocess.Popen(words, cwd=ROOT, env=home.environ) as process:
        try:
            eventually(lambda: home.store.lock(f"user:{user}"), "the lock is taken")
            yield process
        finally:
            process.kill()


@contextmanager
def living(**environ: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with this environment that lives as long as the block."""
    with subprocess.Popen(["/bin/sleep", "1000"], env=environ) as process:
        try:
            yield process
        finally:
            process.kill()


# ---------------------------------------------------------------------- locks of commands


def test_the_lock_of_a_killed_command_stays_until_its_children_are_gone(home: Home) -> None:
    """`lock hold` was killed, the command under it lives: agents stay away until that has ended too."""
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    task = home.submit()
    with holding(home, "ann", "/bin/sh", "-c", f"echo $$ > {home.work}/pid; {LONG}") as holder:
        child = int(eventually(lambda: _text(home.work / "pid"), "the command runs"))
        holder.kill()
        holder.wait()
        home.store.past_locks(1)
        watchdog.run_once()
        dispatcher.run_once()
        assert home.task(task).status is Status.QUEUED
        assert os.path.exists(home.locks_file("ann"))
        os.kill(child, signal.SIGKILL)
        home.play(lambda: home.is_over(task), dispatcher, watchdog)
    past = next(one for one in home.store.past_locks(9) if one.kind == "hold")
    assert past.why == "its holder died"
    assert past.evidence["pid"] == holder.pid
    assert home.log("lock_freed", level="warning")


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip() if path.exists() else ""


def test_the_lock_of_a_living_command_is_left_alone(home: Home) -> None:
    """Age alone never frees a lock, not even when its lease is long over."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 0.002}, intervals={"heartbeat": 0.0005})
    watchdog = home.watchdog()
    with holding(home, "ann", "/bin/sh", "-c", LONG):
        watchdog.run_once()
        watchdog.run_once()
        assert home.store.lock("user:ann") is not None


def test_locks_of_another_boot_are_free_and_those_of_a_renamed_machine_are_not(home: Home) -> None:
    """Nobody of another boot is alive; whoever is of this one is, whatever the machine was called then."""
    instance = home.open()
    watchdog = home.watchdog()
    for user in ("ann", "bob"):
        assert instance.locks.acquire(user, "hold-1", timeout=0)
    home.store.db.run("UPDATE locks SET boot_id = 'another' WHERE name = 'user:ann'")
    home.store.db.run("UPDATE locks SET host = 'elsewhere' WHERE name = 'user:bob'")
    watchdog.run_once()
    assert [lock.name for lock in home.store.locks()] == ["user:bob"]
    assert not os.path.exists(home.locks_file("ann"))
    assert os.path.exists(home.locks_file("bob"))


# ---------------------------------------------------------------------- foreign files


@pytest.mark.parametrize("beside", [False, True])
def test_a_foreign_file_of_a_dead_process_is_freed_and_kept_aside(home: Home, beside: bool) -> None:  # noqa: FBT001
    """Its process is of this host and gone: the file is moved aside, the evidence stored, the user starts."""
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    pid = dead_pid()
    foreign(home, {"user": "ann", "acquired_by_pid": pid, "host": host(), "tool": "other"}, beside=beside)
    task = home.submit()
    dispatcher.run_once()
    assert home.task(task).status is Status.QUEUED
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    [past] = [one for one in home.store.past_locks(9) if one.task_id == stale.SWEEPER]
    assert (past.evidence["proof"], past.evidence["pid"]) == ("its process is gone", pid)
    kept = [Path(past.evidence["aside"] + ending) for ending in (".lock", ".json")]
    assert '"tool": "other"' in "".join(path.read_text("utf-8") for path in kept if path.exists())
    assert home.log("lock_freed", lock="user:ann")


LIVING: dict[str, dict[str, Any] | str | None] = {
    "nothing written in it": None,
    "a living process": {"acquired_by_pid": os.getpid(), "host": host()},
    "a living process with its start": {
        "acquired_by_pid": this_process().pid,
        "pid_start": this_process().start,
        "host": host(),
        "boot_id": boot_id(),
    },
    "no host": {"acquired_by_pid": 2**22 - 1},
    "another host": {"acquired_by_pid": 2**22 - 1, "host": "elsewhere"},
    "no pid": {"host": host()},
    "a pid that is no number": {"host": host(), "acquired_by_pid": "12"},
    "an unknown lock id": {"lock_id": "nobody_1"},
    "a mere pid": f"{2**22 - 1}\n",
    "words": "maintenance\n",
    "a list": "[]",
}


@pytest.mark.parametrize("kind", LIVING)
def test_a_foreign_file_that_may_be_somebodys_is_honoured(home: Home, kind: str) -> None:
    """Without proof of death on this host it stays, however old it is."""
    watchdog = home.watchdog()
    path = foreign(home, LIVING[kind], age=1e6)
    for _ in range(3):
        watchdog.run_once()
    assert path.exists()
    assert home.store.past_locks(9) == []


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
def test_a_link_that_somebody_made_is_honoured(home: Home, make: Callable[[Path, Path], None]) -> None:
    """Tools lock by link(2) and by symlink(2): neither has to hold anything that can be read."""
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    target = Path(home.path, "theirs")
    target.write_text("locked", "utf-8")
    os.utime(target, (time.time() - 100.0,) * 2)
    path = Path(home.locks_file("ann"))
    make(path, target)
    os.utime(path, (time.time() - 100.0,) * 2, follow_symlinks=False)
    task = home.submit()
    for _ in range(3):
        watchdog.run_once()
        dispatcher.run_once()
    assert os.path.lexists(path)
    assert home.task(task).status is Status.QUEUED
    path.unlink()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)


@pytest.mark.parametrize(
    ("data", "proof"),
    [
        ({"acquired_by_pid": 1, "host": host(), "boot_id": "another"}, "another boot"),
        ({"acquired_by_pid": os.getpid(), "host": host(), "pid_start": 1}, "its process is gone"),
    ],
)
def test_a_pid_of_another_boot_or_another_life_proves_death(home: Home, data: dict[str, Any], proof: str) -> None:
    """A pid alone proves nothing; with boot or start time it does."""
    watchdog = home.watchdog()
    path = foreign(home, data)
    watchdog.run_once()
    assert not path.exists()
    assert home.store.past_locks(1)[0].evidence["proof"] == proof


def test_a_lock_that_the_store_forgot_is_kept_while_its_run_lives(home: Home) -> None:
    """Its dispatcher is gone and no row knows it, but processes bear its id: the user is not free."""
    watchdog = home.watchdog()
    path = foreign(home, {"acquired_by_pid": dead_pid(), "host": host(), "lock_id": "lost_7"})
    with living(**{MARKER: "lost_7"}):
        watchdog.run_once()
        assert path.exists()
    watchdog.run_once()
    assert not path.exists()


# ---------------------------------------------------------------------- corrupt files


@pytest.mark.parametrize("beside", [False, True])
def test_corrupt_metadata_is_put_aside_when_nobody_lives(home: Home, beside: bool) -> None:  # noqa: FBT001
    """Nobody of that user runs and nobody has the file open: it is kept aside, and the user is free."""
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    foreign(home, '{"user": "an', ZOE, beside=beside)
    task = home.submit(user=ZOE)
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    past = next(one for one in home.store.past_locks(9) if one.task_id == stale.SWEEPER)
    assert past.evidence["proof"].startswith("unreadable")
    assert Path(past.evidence["aside"] + ".lock").exists()


def test_corrupt_metadata_of_a_living_run_stays(home: Home) -> None:
    """Somebody of that user is alive, as far as anybody can tell: the lock is kept, and the log says why."""
    watchdog = home.watchdog()
    path = foreign(home, "{", ZOE)
    with living(FAIRLEAD_USER=ZOE) as process:
        watchdog.run_once()
        assert path.exists()
        assert home.logged("lock_file_unreadable")["alive"] == [list(_process(process.pid))]
    watchdog.run_once()
    assert not path.exists()


def _process(pid: int) -> tuple[int, int]:
    found = identify(pid)
    assert found is not None
    return found.pid, found.start


@pytest.mark.parametrize("which", [".lock", ".json"])
def test_corrupt_metadata_that_somebody_has_open_stays(home: Home, which: str) -> None:
    """Its maker may be about to write it: whoever has either of the two files open is waited for."""
    watchdog = home.watchdog()
    path = foreign(home, "{", ZOE, beside=True)
    with path.with_suffix(which).open("rb"):
        watchdog.run_once()
        assert path.exists()
        assert home.logged("lock_file_unreadable")["open_by"] == [os.getpid()]
    watchdog.run_once()
    assert not path.exists()


@pytest.mark.parametrize("which", [".lock", ".json"])
def test_corrupt_metadata_that_is_new_waits(home: Home, which: str) -> None:
    """A file that changed a moment ago may be half written."""
    home.configure(intervals={"settle": 60.0})
    watchdog = home.watchdog()
    path = foreign(home, "{", ZOE, beside=True)
    os.utime(path.with_suffix(which))
    watchdog.run_once()
    assert path.exists()


def test_a_file_that_goes_while_it_is_looked_at_is_nobodys(home: Home) -> None:
    """Its maker removed it: there is nothing to prove and nothing to free."""
    watchdog = home.watchdog()
    assert open_files.open_by(home.locks_file("ann")) == []
    assert not watchdog.stale._look_at_file("ann")
    assert not watchdog.stale._clear_away("ann", {})
    assert home.store.locks() == []


def test_who_takes_the_lock_meanwhile_has_it(home: Home) -> None:
    """The row comes first: with somebody else's row there, the file is his."""
    instance, watchdog = home.open(), home.watchdog()
    assert instance.locks.acquire("ann", "hold-1", timeout=0)
    assert not watchdog.stale._clear_away("ann", {})
    assert os.path.exists(home.locks_file("ann"))


def test_a_look_that_fails_half_way_is_made_good_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that is held to clear a file away is not held for ever, although its holder lives."""
    watchdog, dispatcher = home.watchdog(), home.dispatcher()
    foreign(home, {"acquired_by_pid": dead_pid(), "host": host()})
    with monkeypatch.context() as patch:
        patch.setattr(watchdog.stale.store, "release", _busy)
        with pytest.raises(StoreBusyError):
            watchdog.stale.look()
    assert home.store.lock("user:ann") is not None
    watchdog.run_once()
    assert home.store.lock("user:ann") is None
    task = home.submit()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)


def _busy(*_: object, **__: object) -> None:
    raise StoreBusyError


# ---------------------------------------------------------------------- mirrors


def running(home: Home) -> str:
    """A task that runs and has its lock shown."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(LONG)
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    return task


def test_a_mirror_that_was_removed_is_shown_again(home: Home) -> None:
    """The row is the truth; whoever looks at the files alone must see it."""
    task = running(home)
    path = Path(home.locks_file("ann"))
    path.unlink()
    path.with_suffix(".json").unlink()
    home.watchdog().run_once()
    assert json.loads(path.read_text("utf-8"))["task_id"] == task
    assert json.loads(path.with_suffix(".json").read_text("utf-8"))["task_id"] == task


def test_a_mirror_of_a_command_is_shown_again(home: Home) -> None:
    """A person's lock is shown as a run's is."""
    instance, watchdog = home.open(), home.watchdog()
    lock = instance.locks.acquire("ann", "hold-1", timeout=0)
    assert lock is not None
    Path(home.locks_file("ann")).unlink()
    watchdog.run_once()
    assert os.path.exists(home.locks_file("ann"))
    instance.locks.release("ann", lock.lock_id)
    assert not os.path.exists(home.locks_file("ann"))


def test_a_mirror_that_was_spoilt_is_kept_aside_and_made_anew(home: Home) -> None:
    """Corrupt metadata of a lock that is held costs nobody anything."""
    task = running(home)
    path = Path(home.locks_file("ann"))
    for one in (path, path.with_suffix(".json")):
        one.write_text("{", "utf-8")
    home.watchdog().run_once()
    assert json.loads(path.read_text("utf-8"))["task_id"] == task
    aside = home.logged("lock_file_mended", user="ann")["aside"]
    assert Path(aside + ".lock").read_text("utf-8") == "{"


def test_what_somebody_writes_over_a_mirror_locks_the_user_after_the_run(home: Home) -> None:
    """The run ends and its lock with it; the next task waits for whoever wrote there."""
    task = running(home)
    path = Path(home.locks_file("ann"))
    path.write_text("maintenance\n", "utf-8")
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    watchdog.run_once()
    Path(home.path, "go").touch()
    following = home.submit()
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    dispatcher.run_once()
    assert path.read_text("utf-8") == "maintenance\n"
    assert home.task(following).status is Status.QUEUED
    path.unlink()
    home.play(lambda: home.is_over(following), dispatcher, watchdog)


def test_a_left_over_mirror_of_an_earlier_lock_is_replaced(home: Home) -> None:
    """A file that tells of a released lock gives way to the one that is held."""
    first = running(home)
    path = Path(home.locks_file("ann"))
    old = path.read_text("utf-8")
    kill(home.supervisor_of(first))
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: home.is_over(first), None, watchdog)
    second = home.submit(LONG)
    home.play(lambda: home.task(second).status is Status.RUNNING, dispatcher, watchdog)
    path.write_text(old, "utf-8")
    watchdog.run_once()
    assert json.loads(path.read_text("utf-8"))["task_id"] == second


def test_a_left_over_mirror_without_a_row_goes(home: Home) -> None:
    """Its lock was released, the crash came before the file was removed."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(LONG)
    dispatcher.run_once()
    path = Path(home.locks_file("ann"))
    text = path.read_text("utf-8")
    Path(home.path, "go").touch()
    home.play(lambda: home.is_over(task), None, watchdog)
    path.write_text(text, "utf-8")
    watchdog.run_once()
    assert not path.exists()
    assert home.store.past_locks(1)[0].evidence["proof"] == "a mirror of a lock that was released"


def test_a_mirror_of_a_lock_that_is_freed_meanwhile_is_not_shown(home: Home) -> None:
    """Between reading the rows and looking at the file the run may have ended."""
    task = running(home)
    [lock] = home.store.locks()
    Path(home.path, "go").touch()
    watchdog = home.watchdog()
    home.play(lambda: home.is_over(task), None, watchdog)
    watchdog.stale._mend_mirror("ann", lock)
    assert not os.path.exists(home.locks_file("ann"))


def test_the_row_that_clears_a_file_away_is_not_shown(home: Home) -> None:
    """It is held for a moment, and the file it is about is not its own."""
    watchdog = home.watchdog()
    lease = home.open().lease
    held = home.store.acquire("user:ann", task_id=stale.SWEEPER, holder=_other(), now=1, lease=lease)
    assert held is not None
    watchdog.run_once()
    assert not os.path.exists(home.locks_file("ann"))


def _other() -> Any:  # noqa: ANN401 - a Holder
    holder = this_holder()
    parent = identify(os.getppid())
    assert parent is not None
    return type(holder)(host=holder.host, boot_id=holder.boot_id, pid=parent.pid, start=parent.start)


def test_what_a_process_has_open_is_asked_of_the_kernel(home: Home) -> None:
    """A process that is gone, or a descriptor that is, counts as none."""
    status = os.stat(home.path)
    assert not open_files._has_open(dead_pid(), status)
    assert not open_files._is_same("/nowhere", status)
