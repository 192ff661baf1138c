"""Files in the spool: complete ones are taken at once, half-written ones wait, some are left alone."""

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import stays

from fairlead.base.clock import SystemClock
from fairlead.base.dropping import being_written, is_left_alone
from fairlead.daemon.spool import Spool, status_of

GOOD = b'{"prompt": "true", "user": "ann"}'


def spool_of(home: Home, *, settle: float = 3600.0, inotify: bool = True) -> Spool:
    """A look at the spool that takes nothing for complete unless it is told, or has been quiet for so long."""
    home.open()
    return Spool(home.paths, SystemClock(), settle=settle, inotify=inotify)


def put(home: Home, name: str, data: bytes = GOOD, *, age: float = 0.0) -> Path:
    """Write a file into the spool, in place."""
    path = Path(home.paths.spool, name)
    path.write_bytes(data)
    if age:  # else a daemon may have taken it already
        os.utime(path, (time.time() - age,) * 2)
    return path


def test_a_closed_file_is_complete_at_once(home: Home) -> None:
    """Whoever writes a file in place and closes it need not wait for anything."""
    spool = spool_of(home)
    put(home, "task.json")
    assert spool.complete() == (["task.json"], False)


def test_a_moved_file_is_complete_at_once(home: Home) -> None:
    """A file that comes whole, by a rename, need not wait for anything."""
    spool = spool_of(home)
    home.drop("task.json")
    assert spool.complete() == (["task.json"], False)


def test_a_half_written_file_waits_for_its_writer(home: Home) -> None:
    """However long somebody takes to write a file, it is not taken before he closes it."""
    spool = spool_of(home, settle=0.0)
    with Path(home.paths.spool, "task.json").open("wb") as file:
        file.write(GOOD[:10])
        file.flush()
        assert spool.complete() == ([], True)
        file.write(GOOD[10:])
    assert spool.complete() == (["task.json"], False)


def test_what_is_being_written_is_known_by_a_lease(home: Home) -> None:
    """The kernel refuses a lease on a file that somebody has open for writing, and on nothing else."""
    home.open()
    path = put(home, "task.json")
    assert not being_written(str(path))
    with path.open("rb"):
        assert not being_written(str(path))
    with path.open("ab"):
        assert being_written(str(path))
    assert not being_written(str(path) + ".gone")


def test_without_a_word_from_the_kernel_a_file_must_be_quiet(home: Home) -> None:
    """Without inotify a file that changed lately waits; an old one does not, nor one whose time is in the future."""
    spool = spool_of(home, settle=60.0, inotify=False)
    spool.hear()
    put(home, "new.json")
    assert spool.complete() == ([], True)
    put(home, "old.json", age=100.0)
    put(home, "future.json", age=-100.0)
    assert spool.complete() == (["old.json", "future.json"], True)


def test_files_are_taken_oldest_first(home: Home) -> None:
    """Who came first is first, by the time of the last change."""
    spool = spool_of(home)
    for age, name in enumerate(["c.json", "a.json", "b.json"]):
        put(home, name, age=100.0 - age)
    assert spool.complete()[0] == ["c.json", "a.json", "b.json"]


def test_a_ring_about_another_file_says_nothing_about_this_one(home: Home) -> None:
    """What was heard once does not make a later file of the same name complete."""
    spool = spool_of(home)
    put(home, "task.json").unlink()
    assert spool.complete() == ([], False)
    spool.close()
    put(home, "task.json")
    assert spool_of(home).complete() == ([], True)


@pytest.mark.parametrize("name", [".x", ".task.json", "task.json~", "task.json.tmp", "task.swp", "x.part", "rejected"])
def test_some_names_are_left_alone(home: Home, name: str) -> None:
    """Hidden names, editors' and downloaders' unfinished files, and the folder of refused files are not looked at."""
    spool = spool_of(home, settle=0.0)
    if name != "rejected":
        put(home, name, age=100.0)
    assert is_left_alone(name)
    assert spool.complete() == ([], False)


def test_a_file_that_vanishes_is_nobodys(home: Home) -> None:
    """A file that goes between the look and the question about it is passed over."""
    home.open()
    put(home, "task.json", age=100.0)
    with os.scandir(home.paths.spool) as entries:
        [entry] = [one for one in entries if one.name == "task.json"]
    Path(entry.path).unlink()
    assert status_of(entry) is None


def test_without_a_watch_left_the_spool_is_polled(home: Home) -> None:
    """A kernel that gives no inotify instance, or no watch, leaves the poll as the way; nothing breaks."""
    home.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clock = SystemClock()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert Spool(home.paths, clock, settle=0.0, inotify=True).inotify is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.rename(home.paths.spool, f"{home.paths.spool}.away")
    spool = Spool(home.paths, clock, settle=0.0, inotify=True)
    os.rename(f"{home.paths.spool}.away", home.paths.spool)
    assert spool.inotify is None
    assert not spool.hear()
    put(home, "task.json")
    assert spool.complete() == (["task.json"], False)
    spool.close()


@pytest.mark.parametrize("inotify", [True, False])
def test_a_spool_that_was_removed_is_made_anew(home: Home, *, inotify: bool) -> None:
    """Whoever removed it with all that was in it drops the next file as before; by notification, too."""
    spool = spool_of(home, settle=0.0 if not inotify else 3600.0, inotify=inotify)
    shutil.rmtree(home.paths.spool)
    assert spool.hear() == inotify
    assert spool.complete() == ([], False)
    put(home, "task.json")
    assert spool.complete() == (["task.json"], False)
    spool.close()


def test_lock_files_are_watched_while_somebody_waits_for_one(home: Home) -> None:
    """Who begins to watch is told to look once more; nothing is heard of locks otherwise, nor taken for a task."""
    spool = spool_of(home)
    lock = Path(home.paths.locks, "user_ann.lock")

    def come_and_go() -> bool:
        lock.touch()
        lock.unlink()
        return spool.hear()

    assert not come_and_go()
    assert [spool.watch_locks(wanted=wanted) for wanted in (False, True, True)] == [False, True, False]
    assert come_and_go()
    put(home, "user_ann.lock")
    assert spool.complete()[0] == ["user_ann.lock"]
    assert not spool.watch_locks(wanted=False)
    assert spool.hear()  # the kernel says that the watch has ended
    assert not come_and_go()
    os.rename(home.paths.locks, f"{home.paths.locks}.away")
    assert not spool.watch_locks(wanted=True)
    os.rename(f"{home.paths.locks}.away", home.paths.locks)
    assert not spool_of(home, inotify=False).watch_locks(wanted=True)


# ---------------------------------------------------------------------- the daemon


def test_the_daemon_is_woken_by_the_file_itself(home: Home) -> None:
    """A file that is written in place runs at once, although nobody rings and the poll comes in an hour."""
    home.configure(**NO_POLLS)
    home.up()
    put(home, "task.json")
    home.wait_over(home.only_task().id)


def test_the_daemon_takes_a_half_written_file_when_it_is_closed(home: Home) -> None:
    """While somebody writes, nothing happens; his close starts the task."""
    home.configure(**NO_POLLS)
    home.up()
    with Path(home.paths.spool, "task.json").open("wb") as file:
        file.write(GOOD[:5])
        file.flush()
        stays(lambda: home.tasks() == [], "nothing is taken in")
        file.write(GOOD[5:])
    home.wait_over(home.only_task().id)
    assert home.rejected() == []


def test_without_inotify_the_poll_finds_the_file(home: Home) -> None:
    """Where inotify is switched off, a dropped file is found by polling."""
    home.configure(spool={"inotify": False}, intervals={"poll": 0.1})
    home.up()
    home.drop("task.json")
    home.wait_over(home.only_task().id)


@pytest.mark.parametrize("what", ["instances", "watches"])
def test_a_daemon_without_inotify_says_so_and_works(home: Home, what: str) -> None:
    """In a namespace whose kernel has no watch left to give, the daemon warns and polls."""
    exhausted = f'echo 0 > /proc/sys/user/max_inotify_{what} && exec "$0" "$@"'
    prefix = ("unshare", "--user", "--map-root-user", "sh", "-c", exhausted)
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no user namespace here")
    home.configure(intervals={"poll": 0.1})
    home.start("daemon", prefix=prefix)
    home.logged("no_inotify", level="warning")
    home.start("watchdog")
    home.drop("task.json")
    home.wait_over(home.only_task().id)


def test_a_writer_who_meets_our_question_does_not_end_the_daemon(home: Home) -> None:
    """The kernel tells a lease's holder of a writer by SIGIO, which kills who is not prepared: the daemon is."""
    daemon = home.start("daemon")
    daemon.send_signal(signal.SIGIO)
    home.drop("task.json")
    home.only_task()
    assert daemon.poll() is None
