"""Spawners for the tests of this folder, and the ends of what they start."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from tests.conductor.runs import Place, state
from tests.support.patience import PATIENCE, eventually

from fairlead.base.identity import ProcessId
from fairlead.conductor import tree
from fairlead.conductor.meta import Meta


class Spawner:
    """A spawner as the daemon starts it, or by other means."""

    def __init__(self, place: Place, *command: str, cwd: str = "/", errors: int | None = None) -> None:
        self.place = place
        self.errors = place.path / "errors"
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self.errors.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *(command or ("-m", "fairlead.conductor.spawner")), str(place.bells)],
                cwd=cwd,
                stdin=theirs.fileno(),
                stdout=errors or file,
                stderr=errors or file,
                start_new_session=True,
            )

    def launch(self, run_dir: str) -> None:
        """Ask for a supervisor."""
        self.requests.send(os.fsencode(run_dir))

    def play(self, *command: str, **changes: Any) -> Meta:  # noqa: ANN401 - fields of Launch
        """A run from launch to end."""
        run_dir = self.place.make(command, **changes)
        self.launch(run_dir)
        return over(run_dir)

    def close(self) -> int:
        """The daemon goes; returns how the spawner ended."""
        self.requests.close()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Be sure that nothing of it is left."""
        tree.send(tree.below(self.process.pid), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.requests.close()


def over(run_dir: str) -> Meta:
    """Wait for the end of a run."""

    def look() -> Meta | None:
        meta = state(run_dir)
        return meta if meta and meta.ended else None

    return eventually(look, f"{run_dir} does not end")


def supervisor_of(meta: Meta) -> ProcessId:
    """The process that looks after a run."""
    assert meta.supervisor is not None
    return ProcessId(meta.supervisor.pid, meta.supervisor.start)


def sockets_of(pid: int) -> list[str]:
    """The sockets that a process has open."""
    names = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed a moment ago
            names.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return [name for name in names if name.startswith("socket")]
