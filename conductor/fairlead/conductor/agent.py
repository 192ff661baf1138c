"""The agent of a run, as its supervisor handles it: started, looked after until nothing of it is left, or ended.

`Child` is a child process with all that it starts. `fairlead.conductor.in_unit` has the one in a unit of systemd.
"""

import os
import signal
from typing import Protocol

from msgspec import Struct

from fairlead.base.identity import ProcessId
from fairlead.conductor import tree
from fairlead.conductor.orders import Launch

#: The agent gets every signal as a program should, whatever Python, we, or who started the daemon have set.
_CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}

#: What an end is called that the kernel brought about for want of memory.
OUT_OF_MEMORY = "out of memory"

#: Standard input, output and error.
Stdio = tuple[int, int, int]


class End(Struct, frozen=True, kw_only=True):
    """How an agent's first process ended: by itself with a code, by a signal, or nobody knows."""

    code: int | None = None
    signal: int | None = None
    #: What was done to it, where systemd did it.
    cause: str = ""


class Agent(Protocol):
    """One agent with all that it starts."""

    #: Its first process, once it is started.
    pid: int | None
    #: How that ended, once it has.
    end: End | None
    #: Nothing will wake whoever waits for the next thing to happen: look again soon.
    needs_looks: bool

    def start(self, launch: Launch, stdio: Stdio) -> None:
        """Start it; raises OSError or ValueError if it could not be, and then nothing of it is there."""

    def look(self) -> bool:
        """Take note of what has ended; True once nothing of it is left."""

    def processes(self) -> list[ProcessId]:
        """Everything of it that is alive."""

    def send(self, number: int) -> None:
        """Send a signal to all of it."""

    def leave(self) -> None:
        """Its end is written down: let go of it."""


class Child:
    """A child process in a session of its own; what it leaves behind comes back to its supervisor, a subreaper."""

    needs_looks = False

    def __init__(self) -> None:
        self.pid: int | None = None
        self.end: End | None = None

    def start(self, launch: Launch, stdio: Stdio) -> None:
        """Start it where it is to work."""
        os.chdir(launch.cwd)
        self.pid = os.posix_spawn(
            launch.argv[0],
            launch.argv,
            launch.env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(stdio)],
            setsid=True,
            setsigmask=[],
            setsigdef=_CATCHABLE,
        )

    def look(self) -> bool:
        """Collect ended processes; True once there are no children at all: the tree is empty."""
        try:
            while (pid_and_status := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = pid_and_status
                if pid == self.pid and self.end is None:  # else a successor with its pid
                    self.end = _end_of(status)
        except ChildProcessError:
            return True
        return False

    def processes(self) -> list[ProcessId]:
        """Everything below its supervisor."""
        return tree.below(os.getpid())

    def send(self, number: int) -> None:
        """Send a signal to everything below its supervisor."""
        tree.send(self.processes(), number)

    def leave(self) -> None:
        """Leave the directory it worked in."""
        os.chdir("/")


def _end_of(status: int) -> End:
    code = os.waitstatus_to_exitcode(status)
    return End(code=code) if code >= 0 else End(signal=-code)
