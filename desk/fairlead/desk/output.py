"""What a task's agent wrote, piece by piece."""

import os

from msgspec import Struct

from fairlead.base.errors import NotFoundError, UsageError
from fairlead.base.files import opened
from fairlead.conductor.output import STDERR, STDOUT
from fairlead.conductor.rundir import find_dir
from fairlead.desk.looking import Looking
from fairlead.queue.rights import Deed

#: The most that is read at once.
PIECE = 1 << 18
_FILES = {"stdout": STDOUT, "stderr": STDERR}


class NoLogError(NotFoundError):
    """There is no output to show."""


class Piece(Struct, frozen=True, kw_only=True):
    """Some of an attempt's output, and where the next piece begins."""

    data: bytes
    attempt: int
    next: int
    #: Whether the task has ended for good: an empty piece is the end then.
    is_over: bool


class ReadingOutput(Looking):
    """logs."""

    def logs(self, part: str, stream: str = "stdout", attempt: int | None = None, offset: int = 0) -> Piece:
        """What an attempt wrote from an offset on; of the latest, if none is named."""
        if stream not in _FILES:
            raise UsageError(f"there is no stream {stream!r}: write {' or '.join(_FILES)}.")
        task = self.allow(Deed.READ, self.task(part))
        # Asked before reading: what was written before the end is read after it.
        is_over, number = self.is_over(task), attempt or task.attempt
        folder = find_dir(self.office.paths.conductor, task.spec.project, task.id, number)
        if folder is None and (is_over or attempt):
            raise NoLogError(f"task {task.id} is {task.status} and has no output of attempt {number}.")
        data = _read(os.path.join(folder, _FILES[stream]), offset) if folder else b""
        return Piece(data=data, attempt=number, next=offset + len(data), is_over=is_over)


def _read(path: str, offset: int) -> bytes:
    try:
        with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as fd:
            return os.pread(fd, PIECE, offset)
    except FileNotFoundError:
        return b""
