"""The processes of one instance, seen from outside: who is what, by descent; and killing exactly those."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from tests.proof.evidence import Process
from tests.proof.waiting import boottime

_SPAWNER = b"fairlead.conductor.spawner"


class Role(StrEnum):
    """What a process is to the instance."""

    SUBMITTER = "submitter"
    DAEMON = "daemon"
    WATCHDOG = "watchdog"
    SPAWNER = "spawner"
    SUPERVISOR = "supervisor"
    AGENT = "agent"


@dataclass(frozen=True)
class Seen:
    """A process, what it is, and when it was first seen."""

    process: Process
    role: Role
    since: float


class Family:
    """Everybody of an instance who is alive: remembered by descent, so that orphans keep their role."""

    def __init__(self) -> None:
        self._seen: dict[Process, Seen] = {}

    def add(self, pid: int, role: Role) -> None:
        """Know a process that we started ourselves."""
        if (process := identify(pid)) is not None:
            self._note(process, role)

    def look(self) -> None:
        """Forget the dead, and find the children of the living, generation by generation."""
        self._seen = {process: seen for process, seen in self._seen.items() if is_alive(process)}
        todo = list(self._seen.values())
        while todo:
            parent = todo.pop()
            new = [child for child in children_of(parent.process.pid) if child not in self._seen]
            todo += [self._note(child, role) for child in new if (role := _role(child, parent.role))]

    def _note(self, process: Process, role: Role) -> Seen:
        return self._seen.setdefault(process, Seen(process, role, boottime()))

    def living(self, role: Role | None = None) -> list[Seen]:
        """Who was alive at the last look, oldest first."""
        return [seen for seen in self._seen.values() if role in (None, seen.role)]


def _role(child: Process, parent: Role) -> Role | None:
    """What a process is, by whose child it is."""
    match parent:
        case Role.DAEMON:
            return Role.SPAWNER if _SPAWNER in _command_line(child.pid) else None
        case Role.SPAWNER:
            return Role.SUPERVISOR
        case Role.SUPERVISOR | Role.AGENT:
            return Role.AGENT
        case _:
            return None


def identify(pid: int) -> Process | None:
    """The living process with that pid; a zombie counts as none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in b"ZX" else Process(pid, int(fields[19]))


def is_alive(process: Process) -> bool:
    """Whether this very process runs."""
    return identify(process.pid) == process


def children_of(pid: int) -> Iterator[Process]:
    """The living children of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found = [identify(int(child)) for child in file.read().split()]
            yield from (child for child in found if child is not None)


def kill(process: Process) -> bool:
    """Kill this very process, at once; False if it is gone. A successor with its pid is never hit."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def belonging_to(home: str) -> list[Process]:
    """Every living process whose environment names this instance or lies in it: daemons, submitters and agents."""
    own, wanted = os.getpid(), home.encode()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own)
    found = (identify(pid) for pid in pids if wanted in _environment(pid))
    return [process for process in found if process is not None]


def describe(process: Process) -> str:
    """A process for people."""
    return f"pid {process.pid}: {_command_line(process.pid).decode(errors='replace')[:200]}"


def _command_line(pid: int) -> bytes:
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ")


def _environment(pid: int) -> bytes:
    return _read(f"/proc/{pid}/environ")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
