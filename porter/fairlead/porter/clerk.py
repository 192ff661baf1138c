"""A clerk: a process that has become one of the users, and does errands where only that user could.

It trusts nothing it finds there, and it is not trusted: what it says is checked by whoever asked. The user may stop it
or kill it at any moment; that harms nobody but himself.
"""

import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from heapq import nsmallest
from itertools import islice
from typing import Any

from fairlead.base import frames
from fairlead.base.dropping import REJECTED, being_written, is_left_alone
from fairlead.base.errors import FairleadError, UsageError
from fairlead.base.files import (
    UnsafeFileError,
    make_directory,
    names_in,
    opened,
    read_plain,
    remove,
    remove_tree,
    write_all,
    write_atomically,
)
from fairlead.base.ids import is_id, new_id
from fairlead.base.text import visible
from fairlead.conductor import errands, orders
from fairlead.conductor.artifacts import find_artifacts
from fairlead.conductor.output import read_tail
from fairlead.conductor.results import MAX_BYTES

INTAKE = ".intake"
#: Names that are kept from one look; whoever has dropped more is looked at again. The look itself ends somewhere too.
MOST_NAMES, LONGEST_LOOK = 10_000, 1_000_000
#: From so many names on a clerk lets everybody else go first.
MANY, NICE = 1_000, 10
_SEPARATOR = "@"
_NAME_MAX = 255
#: Room for what is put before and behind a name.
_SPARE = 80
_RUN = re.compile(r"[a-z0-9-]{1,64}\.[0-9]{1,9}")
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW


class Clerk:
    """Does errands in one user's spool and tree."""

    def __init__(self, spool: str) -> None:
        self.spool = spool
        self.intake = os.path.join(spool, INTAKE)
        self.rejected = os.path.join(spool, REJECTED)
        self.runs = os.path.join(spool, errands.RUNS)
        #: Names of the last look, the oldest last, that were not looked into yet.
        self._waiting: list[str] = []
        #: Those that were handed over and not settled, by id.
        self._handed: dict[str, str] = {}
        self._settling = False
        #: More was there than the last look has kept.
        self._is_cut = False
        self._count = self._size = 0
        #: Descriptors that go with the reply.
        self._lent: list[int] = []
        self._errands: dict[type, Callable[[Any], errands.Reply]] = {
            errands.Take: self.take,
            errands.Settle: self.settle,
            errands.Note: self.note,
            errands.Prepare: self.prepare,
            errands.Read: self.read,
            errands.Clear: self.clear,
            errands.Prune: self.prune,
        }

    def serve(self, line: socket.socket) -> None:
        """Do errand after errand, until whoever asked hangs up."""
        asked = frames.Frames(line, errands.LONGEST)
        with suppress(ConnectionError, frames.BadFrameError):
            while True:
                for data in asked.take():  # several may have been sent before the first was answered
                    self._answer(line, data)

    def _answer(self, line: socket.socket, data: bytes) -> None:
        reply = self.do(data)
        lent, self._lent = self._lent, []
        frames.send(line, errands.encode(reply), lent)
        for fd in lent:
            os.close(fd)

    def do(self, data: bytes) -> errands.Reply:
        """One errand; whatever goes wrong is told."""
        try:
            errand = errands.decode_errand(data)
            return self._errands[type(errand)](errand)
        except OSError as error:
            return errands.Refused(error.errno or 0, error.strerror or str(error), _as_text(error.filename))
        except (FairleadError, ValueError) as error:
            return errands.Refused(0, str(error))

    # ------------------------------------------------------------------ files that were dropped

    def take(self, errand: errands.Take) -> errands.Delivery:
        """Hand over what was claimed before, then what was dropped: each gets its id by being renamed."""
        if not self._waiting:
            self._look()
        files: list[errands.Dropped] = []
        size = 0
        while self._waiting and len(files) < errand.most and size < errand.most_bytes:
            if dropped := self._hand_over(self._waiting.pop(), errand):
                files.append(dropped)
                size += len(dropped.data)
        more = bool(self._waiting) or (self._is_cut and bool(files))
        return errands.Delivery(files, more=more, settling=self._settling, count=self._count, size=self._size)

    def _look(self) -> None:
        """What lies there: what was claimed and never settled comes first, then what was dropped, oldest first."""
        self._settling = self._is_cut = False
        self._count = self._size = 0
        claimed = sorted(islice(self._claimed_before(), MOST_NAMES))
        dropped = nsmallest(MOST_NAMES, self._dropped())
        self._count += len(claimed)
        self._is_cut = MOST_NAMES in (len(claimed), len(dropped))
        self._waiting = [name for _, name in reversed(dropped)] + claimed[::-1]

    def _claimed_before(self) -> Iterator[str]:
        handed = set(self._handed.values())
        with suppress(FileNotFoundError), os.scandir(self.intake) as entries:
            for entry in islice(entries, LONGEST_LOOK):
                name = os.path.join(INTAKE, entry.name)
                if not entry.name.startswith(".") and name not in handed:
                    yield name

    def _dropped(self) -> Iterator[tuple[int, str]]:
        """Files with their age; they are counted on the way."""
        with os.scandir(self.spool) as entries:
            for entry in islice(entries, LONGEST_LOOK):
                if not is_left_alone(entry.name) and (status := _status_of(entry)):
                    self._count += 1
                    self._size += status.st_size
                    if self._count == MANY:
                        self._step_back()
                    yield status.st_mtime_ns, entry.name

    def _step_back(self) -> None:
        """Whoever has dropped many files takes no processor from those who have dropped a few."""
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))

    def _hand_over(self, name: str, errand: errands.Take) -> errands.Dropped | None:
        """Read a file under the name that it keeps until it is settled; none if it has gone, or is still written."""
        try:
            if not os.path.dirname(name) and not _is_complete(os.path.join(self.spool, name), errand.settle):
                self._settling = True
                return None
            task_id, claimed, shown = self._claim(name)
        except FileNotFoundError:
            return None
        self._handed[task_id] = claimed
        try:
            data = read_plain(os.path.join(self.spool, claimed), errand.file_bytes, owner=os.geteuid())
        except FileNotFoundError:
            del self._handed[task_id]
            return None
        except OSError as error:
            return errands.Dropped(task_id, shown, error=f"it cannot be read: {error.strerror}")
        except UnsafeFileError as error:
            return errands.Dropped(task_id, shown, error=str(error))
        return errands.Dropped(task_id, shown, data)

    def _claim(self, name: str) -> tuple[str, str, str]:
        """The id of a file, the name it has now, and the name it was dropped under."""
        folder, last = os.path.split(name)
        task_id, separator, shown = last.partition(_SEPARATOR)
        if folder and separator and is_id(task_id):
            return task_id, name, _as_text(shown)
        task_id = new_id(time.time_ns() // 1_000_000)
        claimed = os.path.join(INTAKE, f"{task_id}{_SEPARATOR}{_tail(last, _NAME_MAX - _SPARE)}")
        make_directory(self.intake)
        os.rename(os.path.join(self.spool, name), os.path.join(self.spool, claimed))
        return task_id, claimed, _as_text(last)

    def settle(self, errand: errands.Settle) -> errands.Reply:
        """Remove what is accepted; put aside, with a note, what is refused."""
        for task_id in errand.accepted:
            if claimed := self._handed.pop(task_id, None):
                remove(os.path.join(self.spool, claimed))
        for task_id, why in errand.refused.items():
            if task_id in self._handed:
                self._refuse(task_id, why)
        return errands.Fine()

    def _refuse(self, task_id: str, why: str) -> None:
        make_directory(self.rejected)
        claimed = os.path.join(self.spool, self._handed[task_id])
        name = os.path.basename(claimed).partition(_SEPARATOR)[2] or "unnamed"
        if os.path.lexists(os.path.join(self.rejected, name)):
            name = f"{task_id}-{name}"
        text = f"{visible(why)}\n\nCorrect the file, then move it back into the spool.\n"
        write_atomically(os.path.join(self.rejected, f"{name}.error"), text.encode())
        os.rename(claimed, os.path.join(self.rejected, name))
        del self._handed[task_id]

    def note(self, errand: errands.Note) -> errands.Reply:
        """Lay a note beside the refused files."""
        make_directory(self.rejected)
        write_atomically(os.path.join(self.rejected, os.path.basename(errand.name)), visible(errand.text).encode())
        return errands.Fine()

    # ------------------------------------------------------------------ drop-offs of runs

    def prepare(self, errand: errands.Prepare) -> errands.Reply:
        """Make the drop-off of a run, and look whether the agent can be started where it is to work."""
        place = self._run(errand.run)
        remove_tree(place)
        make_directory(place)
        for name, data in errand.files.items():
            with opened(os.path.join(place, os.path.basename(name)), _NEW_FILE) as fd:
                write_all(fd, data)
        with chdir(errand.cwd):
            program = _program(errand.program, errand.path, errand.cwd)
        if errand.stdin:
            self._lent.append(os.open(os.path.join(place, errand.stdin), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
        return errands.Ready(program)

    def read(self, errand: errands.Read) -> errands.Reply:
        """What an agent has left in its drop-off, and in its tree."""
        place = self._run(errand.run)
        progress = read_tail(os.path.join(place, orders.PROGRESS), errand.progress_bytes)
        if not errand.result_bytes:
            return errands.Left(progress)
        result, problem = _result(os.path.join(place, orders.RESULT), min(errand.result_bytes, MAX_BYTES))
        artifacts = find_artifacts(errand.cwd, errand.patterns, errand.most)
        return errands.Left(progress, result, problem, artifacts)

    def clear(self, errand: errands.Clear) -> errands.Reply:
        """Remove the drop-off of a run."""
        remove_tree(self._run(errand.run))
        return errands.Fine()

    def prune(self, errand: errands.Prune) -> errands.Reply:
        """Remove what was refused long ago, and drop-offs of runs that are over."""
        for name in names_in(self.rejected):
            path = os.path.join(self.rejected, name)
            with suppress(OSError):
                if os.lstat(path).st_mtime < errand.before:
                    remove(path)
        for name in set(names_in(self.runs)) - set(errand.runs):
            remove_tree(os.path.join(self.runs, name))
        return errands.Fine()

    def _run(self, name: str) -> str:
        if not _RUN.fullmatch(name):
            raise UsageError(f"{name!r} is no run")
        return os.path.join(self.runs, name)


def _status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What is known of an entry; nothing if it has gone meanwhile."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_complete(path: str, settle: float) -> bool:
    """Whether nobody writes to it any more. What is no file is refused; one that was closed need not be quiet."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return True
    is_young = abs(time.time() - status.st_mtime) < settle
    return not being_written(path) and not (is_young and status.st_size == 0)


def _result(path: str, limit: int) -> tuple[bytes | None, str]:
    try:
        return read_plain(path, limit), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, UnsafeFileError) as error:
        return None, str(error)


def _program(name: str, path: str, cwd: str) -> str:
    """The absolute path of the program, as its user finds it from where the agent will stand."""
    where = os.path.join(cwd, name) if "/" in name else name
    found = shutil.which(where, path=os.pathsep.join(os.path.join(cwd, place) for place in path.split(os.pathsep)))
    if found is None:
        raise UsageError(f"there is no program {name!r} on the agent's PATH; install it, then retry.")
    return os.path.abspath(found)


def _tail(name: str, room: int) -> str:
    """The end of a name, which says the format, in so many bytes."""
    return os.fsdecode(os.fsencode(name)[-room:])


def _as_text(name: Any) -> str:  # noqa: ANN401 - what an error names may be anything
    """A name that can be sent: whatever is no text in it is spelled out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace") if isinstance(name, str | bytes) else ""
