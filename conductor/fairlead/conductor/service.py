"""The conductor as a service: a spawner that waits at a socket, and outlives every restart of who asks it.

Started as `python -m fairlead.conductor.service SOCKET BELLS`. When it is stopped, supervisors go on: they write the
ends of their runs by themselves.
"""

import os
import socket
import stat
import sys
from contextlib import suppress

from fairlead.base.errors import RefusedError
from fairlead.conductor.spawner import Spawner
from fairlead.systemd.notify import Notifier

_BACKLOG = 16


def door_at(path: str) -> socket.socket:
    """A socket that only our own user can connect to; one that nobody listens at any more is replaced."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    _clear(path)
    before = os.umask(0o177)
    try:
        door.bind(path)
    finally:
        os.umask(before)
    door.listen(_BACKLOG)
    return door


def _clear(path: str) -> None:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with probe, suppress(FileNotFoundError, ConnectionRefusedError):
        probe.connect(path)
        raise RefusedError(f"somebody listens at {path} already: leave the work to him, or stop him first.")
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def main() -> None:
    """Serve until asked to stop."""
    path, bells = sys.argv[1:3]
    notifier = Notifier(os.environ)
    Spawner(bells, door=door_at(path)).run(notifier.ready)


if __name__ == "__main__":
    main()
