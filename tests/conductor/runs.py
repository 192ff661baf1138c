"""Real runs for the tests of this folder: directories, supervisors as processes, and clearing up behind them."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import msgspec
from tests.support.patience import PATIENCE, eventually

from fairlead.base.bell import Listener
from fairlead.base.clock import SystemClock
from fairlead.base.identity import ProcessId, boot_id, host, is_alive
from fairlead.conductor import rundir, tree
from fairlead.conductor.meta import CorruptMetaError, Meta, read_meta
from fairlead.conductor.orders import MARKER, InUnit, Launch
from fairlead.systemd.unit import unit_of

ROOT = Path(__file__).parents[2]

#: A supervisor with so few descriptors that its agent's output finds none.
FEW_DESCRIPTORS = """if True:
    import resource
    from fairlead.conductor.supervisor import main

    resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))
    main()
"""

#: Which manager starts the agents, if they are to be in units: these tests are tried so in a booted systemd.
UNITS = os.environ.get("FAIRLEAD_TEST_UNITS", "")

_OPEN = ("claimed", "running")


def agent(name: str, *arguments: object) -> tuple[str, ...]:
    """The command line of one of the agents in agents.py, which start in a few milliseconds."""
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("agents.py")), name, *map(str, arguments))


def shell(script: str) -> tuple[str, ...]:
    """The command line of a shell script."""
    return ("/bin/sh", "-c", script)


class Place:
    """An instance's directories, the runs made in them, and the supervisors that were started for those."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.bells = path / "bells"
        self.conductor = path / "conductor"
        self.work.mkdir()
        self.bells.mkdir()
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._lock_ids: list[str] = []
        self._runs: list[str] = []

    def make(self, argv: tuple[str, ...], prompt: str = "", **changes: Any) -> str:  # noqa: ANN401 - fields of Launch
        """A claimed run that is ready for its supervisor."""
        number = len(self._lock_ids) + 1
        run_dir = rundir.active_dir(str(self.conductor), "project", f"task-{number}", 1)
        meta = self.meta(number)
        launch = self.launch(argv, lock_id=meta.lock_id, **changes)
        rundir.create(run_dir, meta, launch, prompt)
        self._runs.append(run_dir)
        return run_dir

    def meta(self, number: int = 1) -> Meta:
        """The meta data of a new claim."""
        lock_id = f"lock-{os.getpid()}-{time.monotonic_ns()}"
        self._lock_ids.append(lock_id)
        clock = SystemClock()
        return Meta(
            id=f"task-{number}",
            status="claimed",
            user="ann",
            project="project",
            agent="agent",
            attempt=1,
            lock_id=lock_id,
            token=number,
            host=host(),
            boot_id=boot_id(),
            claimed_boot=clock.boot(),
            claimed_at=clock.wall_ms(),
        )

    def launch(self, argv: tuple[str, ...], lock_id: str = "", **changes: Any) -> Launch:  # noqa: ANN401 - see make
        """Orders with short limits."""
        orders = Launch(
            argv=argv,
            cwd=str(self.work),
            env={"PATH": os.environ["PATH"], MARKER: lock_id},
            stdin=None,
            timeout=60.0,
            grace=0.3,
            stop_signal="TERM",
            heartbeat=0.05,
            output_bytes=1 << 20,
            result_bytes=1 << 20,
            artifacts=(),
            artifacts_max=1000,
            bells=str(self.bells),
            task={},
            unit=self._unit(lock_id) if UNITS else None,
        )
        return msgspec.structs.replace(orders, **changes)

    def _unit(self, lock_id: str) -> InUnit:
        name = unit_of(lock_id, 1)
        return InUnit(name=name, description="a run of the tests", by=UNITS)

    def supervise(self, run_dir: str, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's
        """Start a supervisor for that run, as a process of its own."""
        command = [sys.executable, "-m", "fairlead.conductor.supervisor", run_dir]
        supervisor = subprocess.Popen(command, cwd="/", start_new_session=True, **options)
        self.supervisors.append(supervisor)
        return supervisor

    def begin(self, argv: tuple[str, ...], **changes: Any) -> tuple[str, subprocess.Popen[bytes]]:  # noqa: ANN401
        """Make a run and start its supervisor."""
        run_dir = self.make(argv, **changes)
        return run_dir, self.supervise(run_dir)

    def play(self, argv: tuple[str, ...], **changes: Any) -> Meta:  # noqa: ANN401 - see make
        """Make a run, supervise it to its end, and return what was written down of it."""
        run_dir, supervisor = self.begin(argv, **changes)
        return ended(run_dir, supervisor)

    def listen(self) -> Listener:
        """Hear what the watchdog would hear."""
        return Listener(str(self.bells), "watchdog")

    def left_of(self, run_dir: str) -> list[ProcessId]:
        """What is alive of a run."""
        meta = read_meta(run_dir)
        return tree.leftovers(MARKER, meta.lock_id, meta.processes)

    def clear(self) -> None:
        """End everything that was started here."""
        for supervisor in self.supervisors:
            tree.send(tree.below(supervisor.pid), signal.SIGKILL)
            supervisor.kill()
            supervisor.wait()
        settled = {meta.lock_id for run_dir in self._runs if (meta := state(run_dir)) and meta.status not in _OPEN}
        for lock_id in set(self._lock_ids) - settled:
            tree.end_leftovers(MARKER, lock_id, (), 5.0)


def ended(run_dir: str, supervisor: subprocess.Popen[bytes]) -> Meta:
    """Wait for the supervisor's end; returns what it wrote."""
    code = supervisor.wait(PATIENCE)
    trace = Path(run_dir, "supervisor.err")
    assert code == 0, trace.read_text() if trace.exists() else f"the supervisor exited with {code}"
    meta = read_meta(run_dir)
    assert meta.ended
    return meta


def state(run_dir: str) -> Meta | None:
    """The run's meta data as they are now; nothing if they cannot be read."""
    try:
        return read_meta(run_dir)
    except CorruptMetaError:
        return None


def running(run_dir: str) -> Meta:
    """Wait until the run has beaten at least once, and so has said who is in it."""
    return beaten(run_dir, 1)


def beaten(run_dir: str, seq: int) -> Meta:
    """Wait until the run has beaten that often."""

    def look() -> Meta | None:
        meta = state(run_dir)
        return meta if meta and meta.heartbeat.seq >= seq else None

    return eventually(look, f"{run_dir} does not beat")


def text(run_dir: str, name: str) -> str:
    """What is in one of the run's files."""
    return Path(run_dir, name).read_text()


def written(path: Path) -> str:
    """What somebody writes into a file, as soon as there is a whole line of it."""
    eventually(lambda: path.exists() and path.read_text().endswith("\n"), f"nobody writes {path}")
    return path.read_text()


def is_gone(process: ProcessId) -> bool:
    """Whether that process has ended."""
    return not is_alive(process)


def put(kind: str, path: str) -> None:
    """Something that is no file, at this path."""
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            os.mkdir(path)
        case "link":
            os.symlink("/dev/zero", path)
        case _:
            # The whole path may be too long for an address.
            with socket.socket(socket.AF_UNIX) as listener, chdir(os.path.dirname(path)):
                listener.bind(os.path.basename(path))
