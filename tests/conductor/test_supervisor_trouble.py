"""The supervisor in trouble: a full disk, a directory that goes away, a file system that refuses."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conductor.runs import FEW_DESCRIPTORS, Place, agent, beaten, ended, running, shell, state, text
from tests.support.patience import PATIENCE, eventually, stays

from fairlead.base.identity import ProcessId, is_alive, start_of
from fairlead.conductor import rundir, tree
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import last_touch, read_meta

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.01; done"


def may_write(supervisor: "subprocess.Popen[bytes]", size: int) -> None:
    """Let the kernel refuse the supervisor to write files larger than this."""
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def refused(supervisor: "subprocess.Popen[bytes]") -> bool:
    """Whether the supervisor, alone by now, sleeps until its next try."""
    stack = Path(f"/proc/{supervisor.pid}/wchan").read_text()
    return not tree.below(supervisor.pid) and "nanosleep" in stack


def test_an_end_that_cannot_be_written_waits(place: Place) -> None:
    """While the disk refuses, the supervisor stays with the directory held; then the end is written after all."""
    run_dir, supervisor = place.begin(shell(f"{WAIT_FOR_GO}; exit 6"))
    running(run_dir)
    may_write(supervisor, 0)
    (place.work / "go").touch()
    eventually(lambda: not tree.below(supervisor.pid), "the agent does not end")
    eventually(lambda: refused(supervisor), "the supervisor does not wait")
    assert read_meta(run_dir).status == "running"
    assert void(run_dir) is Void.INHABITED
    seen = last_touch(run_dir)
    eventually(lambda: last_touch(run_dir) > seen, "it shows no life")
    supervisor.terminate()  # nothing hurries it
    may_write(supervisor, resource.RLIM_INFINITY)
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.exit_code) == ("failed", 6)


def test_a_heartbeat_that_cannot_be_written_is_skipped(place: Place) -> None:
    """A disk that refuses for a while costs beats and output, not the run; signs of life that need no room go on."""
    run_dir, supervisor = place.begin(shell(f"{WAIT_FOR_GO}; echo lost; rm go; {WAIT_FOR_GO}"))
    running(run_dir)
    may_write(supervisor, 0)
    before = read_meta(run_dir).heartbeat.seq
    (place.work / "go").touch()
    eventually(lambda: not (place.work / "go").exists(), "the agent does not go on")
    for _ in range(3):
        seen = last_touch(run_dir)
        eventually(lambda: last_touch(run_dir) > seen, "it shows no life")  # noqa: B023 - looked at at once
    assert read_meta(run_dir).heartbeat.seq == before
    may_write(supervisor, resource.RLIM_INFINITY)
    beaten(run_dir, before + 2)
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).status == "completed"
    assert text(run_dir, "stdout.log") == "\n[fairlead: 5 bytes left out here]\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full after a quarter of a megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=False, capture_output=True)
    if mount.returncode:
        pytest.skip(f"no small disk here: {mount.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_outlasted(small_disk: Path) -> None:
    """An agent fills the disk that its run directory is on: its end is written as soon as there is room."""
    place = Place(small_disk)
    try:
        fill = "dd if=/dev/zero of=ballast bs=4096 2>&1; dd if=/dev/zero of=crumbs bs=1 count=4096; exit 9"
        run_dir, supervisor = place.begin(shell(fill))
        eventually(lambda: refused(supervisor), "the supervisor does not wait")
        assert (state_of := state(run_dir)) is not None
        assert state_of.status == "running"
        (place.work / "ballast").unlink()
        assert ended(run_dir, supervisor).exit_code == 9
    finally:
        place.clear()


def test_a_directory_that_went_away_ends_nothing(place: Place) -> None:
    """Its supervisor makes it anew and lives in it, so that the run's life and its end can be seen."""
    run_dir, supervisor = place.begin(shell(f"{WAIT_FOR_GO}; touch done"))
    before = running(run_dir)
    shutil.rmtree(run_dir)
    eventually(lambda: state(run_dir) is not None, "nobody moves in")
    assert void(run_dir) is Void.INHABITED
    (place.work / "go").touch()
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.lock_id) == ("completed", before.lock_id)
    assert (place.work / "done").exists()
    assert tree.marked("FAIRLEAD_LOCK_ID", meta.lock_id) == []


def test_a_place_that_went_away_is_not_brought_back(place: Place) -> None:
    """Who removes the whole place wants none of it: the run goes on to its end, and there is nobody to tell."""
    run_dir, supervisor = place.begin(shell(WAIT_FOR_GO))
    meta = running(run_dir)
    shutil.rmtree(place.conductor)
    (place.work / "go").touch()
    assert supervisor.wait(PATIENCE) == 0
    assert not place.conductor.exists()
    assert tree.marked("FAIRLEAD_LOCK_ID", meta.lock_id) == []


@pytest.mark.parametrize("levels", [1, 2], ids=["active", "project"])
def test_a_folder_above_that_was_removed_is_made_anew(place: Place, levels: int) -> None:
    """An agent that tidies up more than its own: there is still an instance that wants to know the end."""
    run_dir, supervisor = place.begin(shell(WAIT_FOR_GO))
    running(run_dir)
    shutil.rmtree(Path(run_dir).parents[levels - 1])
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).status == "completed"


def test_a_run_that_others_have_put_away_is_stopped(place: Place) -> None:
    """They took it for one that never started, and may start the next attempt: it must not go on beside that."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    meta = running(run_dir)
    rundir.discard(run_dir)
    assert supervisor.wait(PATIENCE) == 0
    assert tree.marked("FAIRLEAD_LOCK_ID", meta.lock_id) == []


@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_rights_that_an_agent_gave_away_are_taken_back(place: Place, mode: int) -> None:
    """It owns the directory as much as we do; for root they mean nothing anyway."""
    run_dir, supervisor = place.begin(shell(WAIT_FOR_GO))
    running(run_dir)
    os.chmod(run_dir, mode)
    eventually(lambda: os.stat(run_dir).st_mode & 0o777 == 0o700, "they stay away")
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).status == "completed"


def test_a_machine_without_room_is_no_fault_of_the_task(place: Place) -> None:
    """An agent that cannot be started for want of descriptors is given back, to be tried again; a wrong one fails."""
    run_dir = place.make(shell("true"))
    subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS, run_dir], check=True, timeout=PATIENCE)
    meta = read_meta(run_dir)
    assert (meta.status, meta.reason, meta.pid) == ("void", "no_room", None)
    assert "Too many open files" in meta.error
    assert void(run_dir) is Void.NEVER_STARTED


def test_a_run_that_was_taken_back_with_its_directory_is_stopped(place: Place) -> None:
    """Somebody took it for unstarted, and its user's next task may run: its supervisor ends it when it sees that."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"), heartbeat=0.3)
    running(run_dir)
    shutil.rmtree(run_dir)
    assert void(run_dir) is Void.NEVER_STARTED
    assert supervisor.wait(PATIENCE) == 0
    assert read_meta(run_dir).error == "its run directory was removed, and the run was taken back"


def test_somebody_who_lives_in_a_new_directory_is_left_alone(place: Place) -> None:
    """The supervisor waits until he is gone."""
    run_dir, supervisor = place.begin(shell(WAIT_FOR_GO))
    running(run_dir)
    shutil.rmtree(run_dir)
    rundir.make(run_dir)
    with rundir.only_inhabitant(run_dir) as alone:
        assert alone
        stays(lambda: os.listdir(run_dir) == [], "nobody moves in", 0.3)
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).status == "completed"


def test_a_time_limit_holds_without_a_directory(place: Place) -> None:
    """The limit is enforced on a run whose directory was taken away."""
    run_dir, supervisor = place.begin(agent("leave_daemon", place.path / "witness", 120), timeout=1.5, grace=0.1)
    meta = running(run_dir)
    shutil.rmtree(run_dir)
    assert supervisor.wait(PATIENCE) == 0
    assert tree.marked("FAIRLEAD_LOCK_ID", meta.lock_id) == []


def test_a_working_directory_that_went_away_has_no_artifacts(place: Place) -> None:
    """An agent that removes its own working directory has completed, without artifacts."""
    meta = place.play(shell(f"touch a; rm -r {place.work}"), artifacts=("*", "a", "**/b"))
    assert (meta.status, meta.artifacts) == ("completed", [])


def test_what_cannot_be_announced_is_not_started(place: Place) -> None:
    """If `running` cannot be written, the agent is not started, and the run can be taken back."""
    run_dir = place.make(shell("touch ran"))
    limits = (0, resource.RLIM_INFINITY)
    supervisor = place.supervise(run_dir, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    assert supervisor.wait(PATIENCE) == 1
    assert void(run_dir) is Void.NEVER_STARTED
    assert not (place.work / "ran").exists()


def test_an_agent_outlives_a_killed_supervisor_until_it_is_ended(place: Place) -> None:
    """Without spawner and supervisor the agent goes on; the run counts as started, and is not taken back."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    meta = running(run_dir)
    supervisor.kill()
    supervisor.wait()
    assert meta.pid is not None
    assert is_alive(ProcessId(meta.pid, start_of(meta.pid) or 0))
    assert void(run_dir) is Void.STARTED
