"""The spawner: forks supervisors, outlives the daemon for their sake, and clears up behind those that are killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conductor.runs import Place, agent, running, shell, text, written
from tests.conductor.spawners import Spawner, over, sockets_of, supervisor_of
from tests.support.patience import PATIENCE, eventually

from fairlead.base.identity import is_alive, read_stat
from fairlead.conductor import rundir, tree
from fairlead.conductor.orders import MARKER

# --- Starting ---


def test_each_request_is_a_supervisor(spawner: Spawner) -> None:
    """Runs are played side by side, each by a child of the spawner in a session of its own."""
    runs = [spawner.place.make(shell("while [ ! -e go ]; do sleep 0.01; done")) for _ in range(5)]
    for run_dir in runs:
        spawner.launch(run_dir)
    supervisors = [supervisor_of(running(run_dir)) for run_dir in runs]
    stats = [read_stat(process.pid) for process in supervisors]
    assert {stat.parent for stat in stats if stat} == {spawner.process.pid}
    assert [stat.session for stat in stats if stat] == [process.pid for process in supervisors]
    (spawner.place.work / "go").touch()
    assert [over(run_dir).status for run_dir in runs] == ["completed"] * 5


def test_a_supervisor_has_nothing_of_the_spawner(spawner: Spawner) -> None:
    """Neither the daemon's socket nor the spawner's pipe is open in a supervisor."""
    run_dir = spawner.place.make(shell("exec sleep 120"))
    spawner.launch(run_dir)
    supervisor = supervisor_of(running(run_dir))
    mine, spawners = (
        {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        for pid in (supervisor.pid, spawner.process.pid)
    )
    assert {name for name in mine & spawners if name.startswith(("socket", "pipe"))} == set()


def test_few_modules_are_loaded() -> None:
    """What only the daemon needs is not in the spawner, and so in no supervisor."""
    code = "import sys, fairlead.conductor.spawner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    unwanted = {"structlog", "yaml", "psutil", "apsw", "shutil", "subprocess", "asyncio", "logging", "fairlead.config"}
    assert unwanted & set(loaded) == set()
    assert {name for name in loaded if name.startswith("fairlead.queue.")} == {"fairlead.queue.states"}


#: A spawner that tells whatever it and its supervisors still have to load.
TELLING_IMPORTS = """if True:
    import os, sys
    from fairlead.conductor.spawner import main

    sys.addaudithook(lambda event, args: event == "import" and os.write(2, f"import {args[0]}\\n".encode()))
    main()
"""


def test_nothing_is_loaded_later(place: Place) -> None:
    """A spawner lives for months: an upgrade under its feet must not matter, so it has all that a run can need."""
    spawner = Spawner(place, "-c", TELLING_IMPORTS)
    try:
        rich = shell("seq 9999; touch a; sleep 0.3; kill -40 $$")
        run_dir = place.make(rich, output_bytes=4096, artifacts=("**/a*",))
        Path(run_dir, "result.json").write_text('{"cost": 1}')
        spawner.launch(run_dir)
        slow = place.make(agent("leave_daemon", place.path / "witness", 120), timeout=0.5, grace=0.1)
        spawner.launch(slow)
        missing = place.make(("/nowhere",))
        spawner.launch(missing)
        assert [over(each).reason for each in (run_dir, slow, missing)] == ["signal", "timeout", "not_started"]
        killed = place.make(shell("exec sleep 120"))
        spawner.launch(killed)
        os.kill(supervisor_of(running(killed)).pid, signal.SIGKILL)
        assert spawner.close() == 0
        assert spawner.errors.read_text() == ""
    finally:
        spawner.kill()


def test_a_run_that_was_cleared_away_is_no_trouble(spawner: Spawner) -> None:
    """A request for a directory that is gone is passed over without a word."""
    spawner.launch("/nowhere/at/all")
    assert spawner.play("/bin/true").status == "completed"
    assert spawner.errors.read_text() == ""


def test_a_supervisor_that_fails_early_harms_nobody(spawner: Spawner) -> None:
    """Orders that cannot be read leave a trace in their run directory; the next run is played."""
    run_dir = spawner.place.make(shell("true"))
    Path(run_dir, "task.json").write_text("nonsense")
    spawner.launch(run_dir)
    assert "malformed" in written(Path(run_dir, "supervisor.err"))
    assert spawner.play("/bin/true").status == "completed"
    assert text(run_dir, "meta.json").count("claimed")


#: A spawner that may have few descriptors open; its supervisors have the same limit.
FEW_DESCRIPTORS = """if True:
    import resource
    from fairlead.conductor.spawner import main

    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    main()
"""


def test_a_burst_beyond_the_descriptors_waits_only_for_those_before(place: Place) -> None:
    """Whom no supervisor can be started for is not forgotten: he has one as soon as a descriptor is free."""
    spawner = Spawner(place, "-c", FEW_DESCRIPTORS)
    try:
        runs = [place.make(shell("while [ ! -e go ]; do sleep 0.05; done"), heartbeat=60.0) for _ in range(40)]
        for run_dir in runs:
            spawner.launch(run_dir)
        eventually(lambda: "Too many open files" in spawner.errors.read_text(), "there are enough descriptors")
        (place.work / "go").touch()
        assert [over(run_dir).status for run_dir in runs] == ["completed"] * len(runs)
        assert spawner.close() == 0
    finally:
        spawner.kill()


# --- Outliving ---


def test_nothing_to_do_is_the_end(spawner: Spawner) -> None:
    """Without daemon and without supervisors the spawner ends."""
    assert spawner.play("/bin/true").status == "completed"
    assert spawner.close() == 0


def test_supervisors_outlive_the_daemon_with_their_spawner(spawner: Spawner) -> None:
    """When the daemon goes, runs go on, and the spawner stays until the last of them has ended."""
    run_dir = spawner.place.make(shell("while [ ! -e go ]; do sleep 0.01; done"))
    spawner.launch(run_dir)
    running(run_dir)
    spawner.requests.close()
    eventually(lambda: not sockets_of(spawner.process.pid), "the spawner does not notice")
    assert spawner.process.poll() is None
    (spawner.place.work / "go").touch()
    assert over(run_dir).status == "completed"
    assert spawner.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_polite_signals_are_not_heard(spawner: Spawner, number: signal.Signals) -> None:
    """What ends a daemon and its terminal ends neither spawner nor runs."""
    assert spawner.play("/bin/true").status == "completed"
    spawner.process.send_signal(number)
    assert spawner.play("/bin/true").status == "completed"
    assert spawner.close() == 0


def test_the_daemons_files_and_place_may_go(place: Place) -> None:
    """Without a reader for its errors and without its working directory the spawner goes on, whatever it has to say."""
    folder = place.path / "folder"
    folder.mkdir()
    reader, writer = os.pipe()
    spawner = Spawner(place, cwd=str(folder), errors=writer)
    try:
        os.close(writer)
        assert spawner.play("/bin/true").status == "completed"
        os.close(reader)
        folder.rmdir()
        broken = place.make(shell("true"))
        Path(broken, "task.json").write_text("nonsense")
        spawner.launch(broken)
        assert spawner.play("/bin/true").status == "completed"
        assert spawner.close() == 0
    finally:
        spawner.kill()


def test_supervisors_outlive_a_killed_spawner(spawner: Spawner) -> None:
    """A kill -9 of the spawner ends no run."""
    run_dir = spawner.place.make(shell("while [ ! -e go ]; do sleep 0.01; done"))
    spawner.launch(run_dir)
    supervisor = supervisor_of(running(run_dir))
    spawner.process.kill()
    spawner.process.wait()
    (spawner.place.work / "go").touch()
    assert over(run_dir).status == "completed"
    assert tree.wait_gone([supervisor], PATIENCE) == []


# --- Clearing up ---


@pytest.mark.parametrize("name", ["leave_daemon", "leave_bare_daemon", "refork", "headless", "keep_bare"])
def test_what_a_killed_supervisor_leaves_is_ended(spawner: Spawner, name: str) -> None:
    """Agent and descendants of a supervisor that was killed come to the spawner, which ends them; others go on."""
    witness = spawner.place.path / "witness"
    other = spawner.place.make(shell("exec sleep 120"))
    run_dir = spawner.place.make(shell(f"{' '.join(agent(name, witness))} & exec sleep 120"))
    for each in (other, run_dir):
        spawner.launch(each)
    bystander = supervisor_of(running(other))
    meta = running(run_dir)
    written(witness)
    os.kill(supervisor_of(meta).pid, signal.SIGKILL)
    eventually(lambda: tree.children_of(spawner.process.pid) == [bystander.pid], "something is left")
    assert tree.leftovers(MARKER, meta.lock_id, meta.processes) == []
    assert is_alive(bystander)
    with rundir.only_inhabitant(run_dir) as alone:
        assert alone


@pytest.mark.parametrize("name", ["leave_daemon", "refork", "keep_bare"])
def test_a_spawner_ends_after_its_orphans(spawner: Spawner, name: str) -> None:
    """Daemon gone and last supervisor killed: the spawner ends what that left, then itself."""
    witness = spawner.place.path / "witness"
    run_dir = spawner.place.make(shell(f"{' '.join(agent(name, witness))} & exec sleep 120"))
    spawner.launch(run_dir)
    meta = running(run_dir)
    written(witness)
    spawner.requests.close()
    os.kill(supervisor_of(meta).pid, signal.SIGKILL)
    assert spawner.process.wait(PATIENCE) == 0
    assert tree.leftovers(MARKER, meta.lock_id, meta.processes) == []


# --- When the kernel refuses ---

#: A spawner that may not fork until it gets a signal. Root's processes are never too many, so it is nobody's.
WITHOUT_FORKS = """if True:
    import os, resource, signal
    from fairlead.conductor.spawner import main

    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    most = resource.getrlimit(resource.RLIMIT_NPROC)
    signal.signal(signal.SIGUSR1, lambda *_: resource.setrlimit(resource.RLIMIT_NPROC, most))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, most[1]))
    main()
"""


@pytest.fixture
def open_place() -> Iterator[Place]:
    """A place that any user may work in."""
    path = Path(tempfile.mkdtemp())
    place = Place(path)
    for folder in (path, place.work, place.bells):
        folder.chmod(0o777)
    yield place
    place.clear()
    shutil.rmtree(path)


def test_a_fork_that_fails_is_survived(open_place: Place) -> None:
    """Without room for another process the run stays unclaimed, the error is told, and the next one is played."""
    spawner = Spawner(open_place, "-c", WITHOUT_FORKS)
    try:
        run_dir = make_for(open_place, "/bin/true")
        spawner.launch(run_dir)
        assert f"cannot start a supervisor for {run_dir}" in written(spawner.errors)
        assert text(run_dir, "meta.json").count("claimed")
        spawner.process.send_signal(signal.SIGUSR1)
        run_dir = make_for(open_place, "/bin/true")
        spawner.launch(run_dir)
        assert over(run_dir).status == "completed"
        assert spawner.close() == 0, spawner.errors.read_text()
    finally:
        spawner.kill()


def make_for(place: Place, *command: str) -> str:
    """A run that the spawner's user may look after."""
    run_dir = place.make(command)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "65534", place.conductor], check=True)
    return run_dir


def test_the_death_of_a_supervisor_is_rung(place: Place, spawner: Spawner) -> None:
    """Who was killed can tell nobody, so the spawner does; an end that was written is told by its supervisor alone."""
    bell = place.listen()
    assert spawner.play("/bin/true").status == "completed"
    eventually(lambda: "ended task-1.1" in bell.take(), "the end is rung")
    run_dir = place.make(shell("exec sleep 120"))
    spawner.launch(run_dir)
    supervisor = running(run_dir).supervisor
    assert supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    heard: set[str] = set()
    while "supervisor died" not in heard:
        heard |= eventually(bell.take, "the death is not rung")
    bell.close()
