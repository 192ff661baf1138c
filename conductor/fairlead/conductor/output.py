"""An agent's output: pipes into files of bounded size, of which the beginning and the end are kept."""

import fcntl
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fairlead.base.files import opened, remove, write_all

STDOUT = "stdout.log"
STDERR = "stderr.log"
#: How much of the end of an output is kept with the task.
LAST_WORDS = 2000
#: What is read of a pipe at once, if so much is in it.
_CHUNK = 65536

_APPEND = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Output:
    """The pipes that an agent writes to, and the logs that they are emptied into."""

    def __init__(self, run_dir: str, limit: int, poll: "select.poll") -> None:
        self._dir = run_dir
        self._limit = limit
        self._poll = poll
        self._logs: dict[int, CappedLog] = {}

    @contextmanager
    def into(self, name: str) -> Iterator[int]:
        """Begin a log; the descriptor to write to is open here for as long as the block lasts."""
        log = CappedLog(os.path.join(self._dir, name), self._limit)
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            log.close()
            raise
        os.set_blocking(reader, False)
        self._logs[reader] = log
        self._poll.register(reader, select.POLLIN | select.POLLHUP)
        try:
            yield writer
        finally:
            os.close(writer)

    def __contains__(self, fd: int) -> bool:
        """Whether this is one of the pipes."""
        return fd in self._logs

    def collect(self, fd: int) -> bool:
        """Move what the agent wrote into its log; False if there is nothing now."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(fd)
            return False
        # A full disk costs the log, not the run.
        with suppress(OSError):
            self._logs[fd].write(data)
        return True

    def drain(self) -> None:
        """Take what is left in the pipes. A stranger who was handed one may write on and on: he is not awaited."""
        for fd in list(self._logs):
            for _ in range(fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) // _CHUNK + 1):
                if not self.collect(fd):
                    break
            if fd in self._logs:
                self._close(fd)

    def _close(self, fd: int) -> None:
        """Nothing more comes from there: complete its log."""
        self._poll.unregister(fd)
        os.close(fd)
        with suppress(OSError):
            self._logs.pop(fd).close()


class CappedLog:
    """Writes what it is given to a file: the first half of the limit, then the last half.

    The head goes to the file itself. What comes after goes to two segments in turn, so that at least the last
    half is always there; `close` puts head, a line that says what is missing, and tail together.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.total = 0
        self._half = limit // 2
        self._fd = os.open(path, _APPEND, 0o600)
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
            self._close_tail()
            os.rename(self._newer, self._older)
        # Whatever the agent may have put there: a FIFO would keep us waiting for ever.
        remove(self._newer)
        self._tail_fd = os.open(self._newer, _APPEND | os.O_EXCL, 0o600)
        self._tail_size = 0

    def _close_tail(self) -> None:
        fd, self._tail_fd = self._tail_fd, -1
        os.close(fd)

    @property
    def _newer(self) -> str:
        return self.path + ".tail"

    @property
    def _older(self) -> str:
        return self.path + ".tail.1"

    def close(self) -> None:
        """Put head and tail together in one file."""
        try:
            # By what is there, not by what should be: a full disk may have cost some of the head.
            rest = self.total - os.fstat(self._fd).st_size
            if rest > 0:
                self._add_tail(rest)
        finally:
            if self._tail_fd >= 0:
                self._close_tail()
            os.close(self._fd)

    def _add_tail(self, rest: int) -> None:
        if self._tail_fd >= 0:
            self._close_tail()
        newer = read_tail(self._newer, self._half)
        tail = read_tail(self._older, self._half - len(newer)) + newer
        if rest > len(tail):
            write_all(self._fd, f"\n[fairlead: {rest - len(tail)} bytes left out here]\n".encode())
        write_all(self._fd, tail)
        remove(self._newer)
        remove(self._older)


def read_tail(path: str, count: int) -> bytes:
    """The last bytes of a plain file; nothing if it is none, or cannot be read."""
    try:
        with opened(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as fd:
            status = os.fstat(fd)
            return os.pread(fd, count, max(0, status.st_size - count)) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return b""


def last_words(run_dir: str) -> str:
    """The end of what an agent wrote: to stderr, or to stdout if stderr is silent."""
    for name in (STDERR, STDOUT):
        if data := read_tail(os.path.join(run_dir, name), LAST_WORDS):
            return data.decode("utf-8", "replace")
    return ""
