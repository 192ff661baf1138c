"""Bells: how one process wakes another at once, so that nobody has to poll.

A listener binds a datagram socket in the instance's run directory. Whoever changed something rings: one
datagram to a named listener or to all. Rings may be lost; everybody also looks around now and then.
"""

import os
import socket
from contextlib import suppress

from fairlead.base.files import names_in, remove

#: sun_path holds 108 bytes: longer paths are reached through a descriptor of the directory.
_DATAGRAM = 4096


class Listener:
    """A bell that this process hears: wait for `fileno()` to become readable, then `take()`."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        remove(os.path.join(directory, name))
        with _Address(directory, name) as address:
            self._socket.bind(address)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def take(self) -> set[str]:
        """The words of all rings that have come in."""
        words = set()
        with suppress(BlockingIOError):
            while True:
                words.add(self._socket.recv(_DATAGRAM).decode("utf-8", "replace"))
        return words

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        remove(os.path.join(self.directory, self.name))


def ring(directory: str, name: str, word: str = "") -> bool:
    """Ring one listener; False if nobody listens under that name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender:
        return _send(sender, directory, name, word)


def ring_all(directory: str, word: str = "", *, but: str | None = None) -> None:
    """Ring every listener, and clear away the bells of those who died."""
    names = [name for name in names_in(directory) if name != but]
    if not names:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender:
        for name in names:
            if not _send(sender, directory, name, word):
                remove(os.path.join(directory, name))


def _send(sender: socket.socket, directory: str, name: str, word: str) -> bool:
    try:
        with _Address(directory, name) as address:
            sender.sendto(word.encode()[:_DATAGRAM], address)
    except BlockingIOError:
        return True  # its queue is full: it is awake already, or will see these rings when it wakes
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


class _Address:
    """The socket's path, through /proc/self/fd when it is too long for the kernel's field."""

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, name)
        self._directory = directory
        self._name = name
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < 108:  # noqa: PLR2004 - the size of sun_path
            return self._path
        self._fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}/{self._name}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
