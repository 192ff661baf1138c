"""Who a process is: a pid alone proves nothing, so it travels with its start time, boot and host."""

import os
import pwd
import socket
from functools import cache
from typing import NamedTuple

from fairlead.base.files import opened
from fairlead.base.ids import is_name


class ProcessId(NamedTuple):
    """One process of one boot of one host, never reused."""

    pid: int
    start: int


def user_name(uid: int) -> str:
    """A user's name; one who has none, or none that may be part of a path, is known by number."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    return name if is_name(name) else f"uid-{uid}"


def home_of(user: str) -> str:
    """Where a user is at home; / for one whom the system does not know."""
    entry = _entry(user)
    return entry.pw_dir if entry else "/"


def shell_of(user: str) -> str:
    """A user's login shell."""
    entry = _entry(user)
    return entry.pw_shell if entry and entry.pw_shell else "/bin/sh"


def _entry(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


@cache
def boot_id() -> str:
    """The kernel's id of this boot: rows of another boot belong to the dead."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_of(pid: int) -> int | None:
    """The start time of a living process in clock ticks since boot; None if there is none.

    A zombie has ended: it counts as none.
    """
    stat = read_stat(pid)
    return None if stat is None or stat.has_ended else stat.start


class Stat(NamedTuple):
    """The few fields of /proc/PID/stat that matter here."""

    state: str
    parent: int
    session: int
    threads: int
    start: int

    @property
    def has_ended(self) -> bool:
        """A process whose first thread has ended looks like a zombie, and yet its other threads go on."""
        return self.state in "ZX" and self.threads <= 1


def read_stat(pid: int) -> Stat | None:
    """Read /proc/PID/stat; None if there is no such process."""
    try:
        with opened(f"/proc/{pid}/stat", os.O_RDONLY) as fd:
            text = os.read(fd, 4096)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name may hold spaces and brackets: the fields begin behind the last bracket.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[17]), int(fields[19]))


def this_process() -> ProcessId:
    """The calling process."""
    pid = os.getpid()
    start = start_of(pid)
    if start is None:
        raise AssertionError("the calling process is not in /proc")
    return ProcessId(pid, start)


def is_alive(process: ProcessId) -> bool:
    """Whether this very process, not a successor with its pid, still runs."""
    return start_of(process.pid) == process.start
