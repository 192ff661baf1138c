"""Messages on a stream socket: a length, then MessagePack; descriptors may come along with one.

Whoever must not be kept waiting reads with `Frames`, which takes what has come and keeps half a message for later.
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from fairlead.base.errors import FairleadError

_HEAD = struct.Struct("!I")
#: Of descriptors that come with one message.
MOST_FDS = 8
_CHUNK = 1 << 16


class BadFrameError(FairleadError):
    """The other side sent what is no message, or one that is too long."""


def send(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message whole, with descriptors if there are any."""
    whole = _HEAD.pack(len(data)) + data
    sent = socket.send_fds(sock, [whole], fds) if fds else sock.send(whole)
    if sent < len(whole):
        sock.sendall(memoryview(whole)[sent:])


def receive(sock: socket.socket, limit: int) -> tuple[bytes, list[int]]:
    """Wait for one message, as long as the socket's timeout says; raises ConnectionError if the other side hung up."""
    frames = Frames(sock, limit)
    try:
        while True:
            for data in frames.take():
                return data, frames.take_fds()
    finally:
        close_all(frames.take_fds())


def close_all(fds: Sequence[int]) -> None:
    """Close descriptors that nobody wants."""
    for fd in fds:
        with suppress(OSError):
            os.close(fd)


class Frames:
    """The messages of one socket, as they come."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.sock = sock
        self._limit = limit
        self._buffer = bytearray()
        self._fds: list[int] = []

    def take(self) -> Iterator[bytes]:
        """Read once, and yield every message that is complete by now; raises ConnectionError at the end."""
        chunk, fds, _, _ = socket.recv_fds(self.sock, _CHUNK, MOST_FDS)
        for fd in fds:
            os.set_inheritable(fd, False)
        self._fds += fds
        if not chunk:
            raise ConnectionResetError("the other side hung up")
        self._buffer += chunk
        while (size := self._size()) is not None and len(self._buffer) >= _HEAD.size + size:
            data = bytes(self._buffer[_HEAD.size : _HEAD.size + size])
            del self._buffer[: _HEAD.size + size]
            yield data

    def _size(self) -> int | None:
        if len(self._buffer) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._buffer)
        if size > self._limit:
            raise BadFrameError(f"a message of {size} bytes; at most {self._limit} are allowed")
        return int(size)

    def take_fds(self) -> list[int]:
        """The descriptors that have come since the last time; they are the caller's to close."""
        fds, self._fds = self._fds, []
        return fds

    def close(self) -> None:
        """Hang up, and close whatever descriptors nobody has taken."""
        close_all(self.take_fds())
        self.sock.close()
