"""Transient units of agents: what is asked for, what is known of one, and who can be asked.

Light, because every supervisor loads it; `transient` speaks to systemd itself.
"""

import errno
import os
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from fairlead.base.errors import FairleadError, RefusedError
from fairlead.base.files import opened
from fairlead.base.ids import is_id

PREFIX = "fairlead-run-"
_SUFFIX = ".service"
#: All agents of a host, or of a user's manager, are in this slice.
SLICE = "fairlead.slice"
#: systemd's exit statuses of a process that could not enter its directory, or execute its program.
_CHDIR, _EXEC = 200, 203


#: A first process that ended by itself, as siginfo has it.
EXITED = 1
#: Agents are of another type than fences.
FENCE = "oneshot"
#: The result of a unit that the kernel ended for want of memory, as systemd calls it.
OUT_OF_MEMORY = "oom-kill"


class UnitExistsError(RefusedError):
    """There is a unit of that name already."""


class NoManagerError(FairleadError):
    """systemd cannot be asked now."""

    exit_code = 6


class NotStartedError(FairleadError):
    """The unit's program did not start: where systemd gave up, by its exit status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"systemd could not start it (exit status {status})")

    @property
    def is_without_directory(self) -> bool:
        """Whether the working directory could not be entered."""
        return self.status == _CHDIR

    @property
    def is_without_program(self) -> bool:
        """Whether the program could not be executed."""
        return self.status == _EXEC


class Order(Struct, frozen=True, kw_only=True):
    """A unit that is to be started."""

    name: str
    description: str
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    #: Whom it runs as; none: whom the manager runs as.
    user: str | None = None
    #: Seconds after which systemd ends it, whatever happens to its supervisor; 0: never.
    most: float = 0.0
    #: The keys of a `sandbox` section with their values.
    sandbox: dict[str, Any] = field(default_factory=dict)


class Started(Struct, frozen=True, kw_only=True, tag=True):
    """A unit that has just been started."""

    #: Its first process, which may have ended already.
    pid: int
    #: Its path in the hierarchy of control groups.
    cgroup: str


class State(Struct, frozen=True, kw_only=True, tag=True):
    """What systemd knows of a unit; of one that it does not know, nothing is active."""

    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    #: How its first process ended, as in siginfo: 1 exited, 2 killed, 3 dumped; 0: it runs.
    code: int = 0
    #: With what exit status, or by which signal.
    status: int = 0
    pid: int = 0
    cgroup: str = ""
    #: It was never to run: it keeps a unit of its name from being started.
    is_fence: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether its first process has ended."""
        return self.code != 0

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel ended it for want of memory."""
        return self.result == OUT_OF_MEMORY


class Units(Protocol):
    """Whoever starts and ends units: systemd itself, or a porter who may ask it."""

    def start(self, order: Order, stdio: tuple[int, int, int]) -> Started:
        """Start a unit with these as standard input, output and error; returns once its program runs.

        Raises UnitExistsError, NotStartedError or NoManagerError.
        """

    def state(self, name: str) -> State:
        """What is known of a unit."""

    def signal(self, name: str, number: int) -> None:
        """Send a signal to every process of a unit; nothing if there is none."""

    def forget(self, name: str) -> None:
        """End what is left of a unit, and let systemd forget it."""

    def fence(self, name: str) -> bool:
        """See to it that no unit of that name is started from now on; False if there is one."""

    def names(self) -> list[str]:
        """All units of agents, fences among them."""

    def close(self) -> None:
        """Let go; units go on."""


def unit_of(task_id: str, attempt: int) -> str:
    """The name of the unit of one attempt: who knows the attempt knows the unit."""
    return f"{PREFIX}{task_id}.{attempt}{_SUFFIX}"


def run_of(name: str) -> tuple[str, int] | None:
    """The task and the attempt that a unit is for; none if it is for no run."""
    task_id, _, number = name.removeprefix(PREFIX).removesuffix(_SUFFIX).rpartition(".")
    is_ours = name.startswith(PREFIX) and name.endswith(_SUFFIX)
    return (task_id, int(number)) if is_ours and is_id(task_id) and number.isdecimal() else None


# ---------------------------------------------------------------------- control groups

#: Where the hierarchy is that systemd keeps its units in: cgroup v2, alone or beside v1's, or v1's own.
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")


def folder_of(cgroup: str) -> str:
    """The directory of a control group."""
    mount = next((one for one in _MOUNTS if os.path.exists(os.path.join(one, "cgroup.procs"))), _MOUNTS[0])
    return mount + cgroup


def processes_in(cgroup: str) -> list[int]:
    """Every process of a control group and of those below it; none if it is gone.

    Raises OSError where nobody can look: that must not be taken for an empty group.
    """
    found: list[int] = []
    for place, _, _ in os.walk(folder_of(cgroup), onerror=_unless_gone) if cgroup.strip("/") else ():
        try:
            with opened(os.path.join(place, "cgroup.procs"), os.O_RDONLY) as fd, open(fd, "rb", closefd=False) as file:
                found += map(int, file.read().split())
        except OSError as error:
            _unless_gone(error)
    return found


def _unless_gone(error: OSError) -> None:
    """Removed a moment ago; or a group of threads, whose processes are listed above it."""
    if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        raise error


def manager_for(environ: Mapping[str, str]) -> str | None:
    """Which manager may start units for whoever has this environment: `system`, `user`, or none."""
    if not os.path.isdir("/run/systemd/system"):
        return None
    if os.geteuid() == 0:
        return "system"
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return "user" if runtime and os.path.exists(os.path.join(runtime, "bus")) else None
