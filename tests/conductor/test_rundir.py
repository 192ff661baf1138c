"""Run directories: where they are, what is in a new one, who lives in one, and how they are put away."""

import multiprocessing
import os
import re
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from tests.conductor.runs import ROOT, Place, shell, text
from tests.support.packages import need

from fairlead.conductor import rundir
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import read_meta
from fairlead.conductor.orders import read_launch


def test_every_attempt_has_its_own_place(tmp_path: Path) -> None:
    """Active and finished attempts lie in different folders of their project, and are found in either."""
    conductor = str(tmp_path)
    active = rundir.active_dir(conductor, "p", "task", 2)
    assert active == f"{conductor}/p/active/task.2"
    assert rundir.find_dir(conductor, "p", "task", 2) is None
    rundir.make(active)
    assert rundir.find_dir(conductor, "p", "task", 2) == active
    rundir.finish(conductor, "p", "task", 2)
    assert rundir.find_dir(conductor, "p", "task", 2) == f"{conductor}/p/finished/task.2"
    rundir.finish(conductor, "p", "task", 2)
    assert rundir.find_dir(conductor, "p", "task", 1) is None


def test_all_active_runs_are_listed(tmp_path: Path) -> None:
    """Every directory under active/ of every project; stray files do not disturb."""
    conductor = str(tmp_path / "conductor")
    assert list(rundir.all_active(conductor)) == []
    runs = [rundir.active_dir(conductor, project, "task", 1) for project in ("a", "b")]
    for run in runs:
        rundir.make(run)
    rundir.make(rundir.finished_dir(conductor, "c", "task", 1))
    Path(conductor, "stray").touch()
    assert list(rundir.all_active(conductor)) == runs


def test_a_new_directory_holds_what_a_supervisor_reads(place: Place) -> None:
    """State, orders and prompt are there, whole, for the owner alone; an empty prompt is a file as well."""
    prompt = "äöü " * 3_000_000
    run_dir = place.make(shell("true"), prompt)
    assert read_meta(run_dir).status == "claimed"
    assert read_launch(run_dir).argv == shell("true")
    assert text(run_dir, "prompt.txt") == prompt
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(run_dir)}
    assert modes == dict.fromkeys(("meta.json", "task.json", "prompt.txt"), 0o600)
    assert os.stat(run_dir).st_mode & 0o777 == 0o700
    assert text(place.make(shell("true")), "prompt.txt") == ""


def test_a_directory_is_made_once(place: Place) -> None:
    """A directory that is there is nobody else's to make, and stays as it is."""
    run_dir = place.make(shell("true"))
    before = text(run_dir, "meta.json")
    with pytest.raises(FileExistsError):
        rundir.create(run_dir, place.meta(), place.launch(shell("false")), "")
    assert text(run_dir, "meta.json") == before


def test_an_announced_run_is_durable(tmp_path: Path) -> None:
    """What is synced is meta.json, its name, the directory's name, and the new folders above: that much, no more."""
    code = f"""if True:
        from pathlib import Path
        from tests.conductor.runs import Place, shell
        from fairlead.conductor import rundir
        place = Place(Path({str(tmp_path)!r}))
        rundir.announce(place.make(shell("true")), place.meta())
    """
    root = str(tmp_path / "conductor")
    assert synced(code, tmp_path / "trace") == [
        str(tmp_path),
        root,
        f"{root}/project",
        f"{root}/project/active/task-1.1/meta.json",
        f"{root}/project/active/task-1.1",
        f"{root}/project/active",
    ]


def synced(code: str, trace: Path) -> list[str]:
    """The files and directories that a program syncs, in order."""
    command = ("strace", "-f", "-y", "-e", "trace=fsync,fdatasync,sync,syncfs", "-o", str(trace))
    need("strace")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no strace that works here: {error}")
    subprocess.run([*command, sys.executable, "-c", code], check=True, cwd=ROOT)
    return re.findall(r"sync\(\d+<([^>]*)>", trace.read_text())


# --- Who lives there ---


def test_one_inhabitant_at_a_time(tmp_path: Path) -> None:
    """While one holds the directory nobody else does; afterwards the next may."""
    with rundir.only_inhabitant(str(tmp_path)) as first, rundir.only_inhabitant(str(tmp_path)) as second:
        assert (first, second) == (True, False)
    with rundir.only_inhabitant(str(tmp_path)) as third:
        assert third


def test_nobody_lives_in_a_directory_that_was_put_away(tmp_path: Path) -> None:
    """Whoever opened the lock before the directory was cleared away is not taken for its inhabitant."""
    run_dir = rundir.active_dir(str(tmp_path), "p", "task", 1)
    rundir.make(run_dir)
    holder = rundir.only_inhabitant(run_dir)
    assert holder.__enter__()
    with pytest.raises(FileNotFoundError), rundir.only_inhabitant(f"{run_dir}/nowhere"):
        pass
    lock = os.open(run_dir, os.O_RDONLY)
    holder.__exit__(None, None, None)
    assert rundir.is_at(lock, run_dir)
    rundir.finish(str(tmp_path), "p", "task", 1)
    assert not rundir.is_at(lock, run_dir)
    rundir.make(run_dir)
    with rundir.only_inhabitant(run_dir) as alone:
        assert alone
        assert not rundir.is_at(lock, run_dir)
    os.close(lock)


def test_a_run_directory_is_not_a_link(tmp_path: Path) -> None:
    """A link in its place is refused: what it leads to is not ours to lock."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError), rundir.only_inhabitant(str(tmp_path / "link")):
        pass


def test_nothing_that_can_be_removed_from_a_run_directory_lets_a_second_one_in(tmp_path: Path) -> None:
    """The lock is on the directory itself: whatever an agent removes in there, its supervisor stays the only one."""
    with rundir.only_inhabitant(str(tmp_path)) as first:
        for path in tmp_path.iterdir():
            path.unlink()
        with rundir.only_inhabitant(str(tmp_path)) as second:
            assert (first, second) == (True, False)


def _hold(run_dir: str, rounds: int, barrier: Barrier) -> None:
    """Enter as often as possible; whoever is in there with somebody else dies of it."""
    barrier.wait()
    for _ in range(rounds):
        with rundir.only_inhabitant(run_dir) as alone:
            if alone:
                os.mkdir(f"{run_dir}/room")
                os.rmdir(f"{run_dir}/room")


def test_many_who_want_in_never_meet(tmp_path: Path) -> None:
    """Processes that enter and leave thousands of times never find each other inside."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    crowd = [context.Process(target=_hold, args=(str(tmp_path), 1000, barrier)) for _ in range(4)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert [one.exitcode for one in crowd] == [0] * 4


# --- Putting away ---


def test_a_discarded_run_cannot_be_made_again(place: Place) -> None:
    """A dispatcher that slept while its claim was taken back comes too late, whenever it wakes up."""
    run_dir = rundir.active_dir(str(place.conductor), "project", "task-9", 1)
    assert void(run_dir) is Void.NEVER_STARTED
    rundir.discard(run_dir)
    assert not os.path.exists(run_dir)
    for _ in range(2):
        with pytest.raises(FileExistsError):
            rundir.create(run_dir, place.meta(), place.launch(shell("true")), "")
        assert not os.path.exists(run_dir)


def test_discarding_twice_is_discarding(place: Place) -> None:
    """Two who take a run back may both put it away; nothing of it stays among the active ones."""
    run_dir = place.make(shell("true"))
    for _ in range(2):
        assert void(run_dir) is Void.NEVER_STARTED
        rundir.discard(run_dir)
        assert list(rundir.all_active(str(place.conductor))) == []
    rundir.discard(run_dir)
    kept = rundir.finished_dir(str(place.conductor), "project", "task-1", 1)
    assert read_meta(kept).status == "void"
