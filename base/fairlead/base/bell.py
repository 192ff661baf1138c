"""Bells: how one process wakes another at once, so that nobody has to poll.

A listener binds a datagram socket in the instance's run directory. Whoever changed something rings: one
datagram to a named listener or to all. Rings may be lost; everybody also looks around now and then.
"""

import _socket as socket  # what the module socket adds to it costs every short command two milliseconds
import fcntl
import os
from collections.abc import Iterable
from contextlib import closing, suppress

from fairlead.base.files import names_in, opened, remove

_DATAGRAM = 4096


class Listener:
    """A bell that this process hears: wait for `fileno()` to become readable, then `take()`."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name
        self._socket = self._hang_up()

    def _hang_up(self) -> socket.socket:
        bell = _datagrams(socket.SOCK_NONBLOCK)
        with (
            opened(self.directory, os.O_RDONLY | os.O_DIRECTORY) as fd,
            _Address(self.directory, self.name) as address,
        ):
            fcntl.flock(fd, fcntl.LOCK_EX)  # or else `_clear` could take the new bell for the old one
            remove(os.path.join(self.directory, self.name))
            bell.bind(address)
        return bell

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def is_in_place(self) -> bool:
        """Whether others who ring under this name are heard here."""
        return os.path.lexists(os.path.join(self.directory, self.name))

    def hang_up_anew(self) -> None:
        """Be heard again under this name, by another descriptor."""
        before, self._socket = self._socket, self._hang_up()
        before.close()

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
    with closing(_datagrams(socket.SOCK_NONBLOCK)) as sender:
        return _send(sender, directory, name, word)


def is_heard(directory: str, name: str) -> bool:
    """Whether somebody listens under that name; nobody is woken."""
    with closing(_datagrams()) as probe:
        try:
            with _Address(directory, name) as address:
                probe.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def ring_all(directory: str, word: str = "", *, but: str | None = None) -> None:
    """Ring every listener, and clear away the bells of those who died."""
    names = [name for name in names_in(directory) if name != but]
    if not names:
        return
    with closing(_datagrams(socket.SOCK_NONBLOCK)) as sender:
        dead = [name for name in names if not _send(sender, directory, name, word)]
    if dead:
        _clear(directory, dead)


def _clear(directory: str, names: Iterable[str]) -> None:
    """Remove the bells that still nobody hears; whoever finds somebody else at it leaves it to them."""
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd, suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in names:
            if not is_heard(directory, name):
                remove(os.path.join(directory, name))


def _send(sender: socket.socket, directory: str, name: str, word: str) -> bool:
    try:
        with _Address(directory, name) as address:
            sender.sendto(word.encode()[:_DATAGRAM], address)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        # Its queue is full: it will see the rings that are in there. Or the ring is lost, which is allowed.
        return True
    return True


def _datagrams(flags: int = 0) -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | flags)


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
