"""Sockets that systemd has opened for a service."""

import os
import socket
from collections.abc import MutableMapping

#: The first descriptor that is handed over, as sd_listen_fds(3) has it.
_FIRST = 3


def inherited(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets that were opened for this very process; what says so is taken out of the environment."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    numbers = range(_FIRST, _FIRST + int(count))
    for fd in numbers:
        os.set_inheritable(fd, False)
    return [socket.socket(fileno=fd) for fd in numbers]
