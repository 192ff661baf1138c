"""An agent's output in a file of bounded size: the beginning and the end are kept."""

import os

from fairlead.base.files import opened, remove, write_all

_CHUNK = 65536


class CappedLog:
    """Writes what it is given to a file: the first half of the limit, then the last half.

    The head goes to the file itself. What comes after goes to two segments in turn, so that at least the last
    half is always there; `close` puts head, a line that says what is missing, and tail together.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.total = 0
        self._half = limit // 2
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._tail_fd = -1
        self._tail_size = 0

    def write(self, data: bytes) -> None:
        """Keep this, as far as it belongs to the beginning or the end."""
        room = max(0, self._half - self.total)
        self.total += len(data)
        if room:
            write_all(self._fd, data[:room])
        if rest := data[room:]:
            self._write_tail(rest)

    def _write_tail(self, data: bytes) -> None:
        if self._tail_fd < 0 or self._tail_size >= self._half:
            self._turn()
        write_all(self._tail_fd, data)
        self._tail_size += len(data)

    def _turn(self) -> None:
        """The full segment becomes the older one; what was older is forgotten."""
        if self._tail_fd >= 0:
            os.close(self._tail_fd)
            os.rename(self._newer, self._older)
        self._tail_fd = os.open(self._newer, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._tail_size = 0

    @property
    def _newer(self) -> str:
        return self.path + ".tail"

    @property
    def _older(self) -> str:
        return self.path + ".tail.1"

    def close(self) -> None:
        """Put head and tail together in one file."""
        if self._tail_fd >= 0:
            os.close(self._tail_fd)
            self._tail_fd = -1
            self._join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _join(self) -> None:
        tail = _last_bytes(self._older, self._newer, self._half)
        missing = self.total - self._half - len(tail)
        if missing:
            write_all(self._fd, f"\n[fairlead: {missing} bytes left out here]\n".encode())
        write_all(self._fd, tail)
        remove(self._newer)
        remove(self._older)


def _last_bytes(older: str, newer: str, count: int) -> bytes:
    end = read_tail(newer, count)
    return read_tail(older, count - len(end)) + end


def read_tail(path: str, count: int) -> bytes:
    """The last bytes of a file; nothing if it is not there."""
    if count <= 0:
        return b""
    try:
        with opened(path, os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            return os.pread(fd, count, max(0, size - count))
    except FileNotFoundError:
        return b""
