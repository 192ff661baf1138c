"""Taking claimed files into the store: the one way in, for the daemon's intake and for `submit`.

A claimed file lies in spool/.intake under its task's id. From there it is parsed, made durable, entered into the
store with one commit for the batch, and moved to accepted/, where it stays until the task is archived. A crash at any
point leaves it in one of the two places, and doing it again is a no-op.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct

from fairlead.base.clock import Clock
from fairlead.base.errors import FairleadError
from fairlead.base.files import (
    make_directory,
    names_in,
    opened,
    read_plain,
    sync_directory,
    sync_file,
    sync_file_system,
    write_atomically,
)
from fairlead.base.identity import user_name
from fairlead.base.ids import bucket, created_at, is_id, new_id
from fairlead.base.logs import Log
from fairlead.base.text import one_line, visible
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.errors import StoreBusyError, StoreUnavailableError
from fairlead.queue.store import Admitted, Store, Submission
from fairlead.queue.task import Event
from fairlead.queue.taskfile import parse_task

#: From this many files on, one syncfs is cheaper than an fsync each.
MANY = 8
_NAME_MAX = 255
_SEPARATOR = "@"


class CannotRejectError(FairleadError):
    """A wrong file cannot be moved to the refused ones."""


class Claimed(Struct, frozen=True, kw_only=True):
    """A file that was renamed to its task's id."""

    id: str
    path: str
    #: The name it was dropped under.
    name: str


class Rejected(Struct, frozen=True, kw_only=True):
    """A file that was refused, and where it is now."""

    id: str
    path: str
    error: str


class Result(Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    admitted: tuple[Admitted, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    #: Things a submitter should know: (id, sentence).
    notes: tuple[tuple[str, str], ...] = ()


class Admission:
    """Parses claimed files and enters them into the store."""

    def __init__(self, paths: Paths, config: Config, store: Store, clock: Clock, log: Log) -> None:
        self.paths = paths
        self.config = config
        self.store = store
        self.clock = clock
        self.log = log

    def claim_name(self, task_id: str, name: str) -> str:
        """Where a file waits between being claimed and being accepted."""
        return claimed_path(self.paths, task_id, name)

    def claim(self, name: str) -> Claimed | None:
        """Give a dropped file its id by renaming it; None if somebody else took it, or it cannot be taken."""
        task_id = new_id(self.clock.wall_ms())
        target = self.claim_name(task_id, name)
        make_directory(self.paths.intake)  # whoever tidies up the spool may have removed it
        try:
            os.rename(os.path.join(self.paths.spool, name), target)
        except FileNotFoundError:
            return None
        except OSError as error:
            # One such file must not keep the others waiting.
            self.log.warning("cannot_take_in", file=one_line(name), error=str(error))
            return None
        return Claimed(id=task_id, path=target, name=name)

    def claimed(self) -> list[Claimed]:
        """Files that were claimed and not yet accepted: by a process that died, or while the store was away."""
        return claimed_in(self.paths)

    def admit(self, files: Sequence[Claimed]) -> Result:
        """Parse, make durable, enter with one commit, move to accepted/; then refuse what is wrong, once.

        The good ones come first: trouble with a refusal must not keep them waiting. It is raised when all is done.
        """
        submissions: dict[str, Submission] = {}
        refusals: list[tuple[Claimed, str]] = []
        notes: list[tuple[str, str]] = []
        for file in files:
            try:
                submissions[file.id], more = self._read(file)
            except FileNotFoundError:
                continue  # somebody else has admitted it meanwhile
            except (FairleadError, OSError) as error:
                refusals.append((file, str(error)))
            else:
                notes += [(file.id, note) for note in more]
        by_id = {file.id: file for file in files if file.id in submissions}
        self._make_durable(list(by_id.values()))
        admitted = self._enter(list(submissions.values()))
        for one in admitted:
            if one.refusal:
                refusals.append((by_id[one.id], one.refusal))
            else:
                self._accept(by_id[one.id])
                self._tell(one, submissions[one.id])
        rejected = self._reject_all(refusals)
        return Result(admitted=tuple(admitted), rejected=tuple(rejected), notes=tuple(notes))

    def _read(self, file: Claimed) -> tuple[Submission, tuple[str, ...]]:
        data = read_plain(file.path, self.config.limits.task_file_bytes)
        now = self.clock.wall_ms()
        parsed = parse_task(data, file.name, self._owner(file.path), self.config, now)
        express = parsed.spec.priority == 0 and parsed.spec.user in self.config.operators
        submission = Submission(id=file.id, spec=parsed.spec, created_at=created_at(file.id, now), express=express)
        return submission, tuple(parsed.notes)

    def _owner(self, path: str) -> str:
        """The user of a task that names none: configured, or the file's owner."""
        return self.config.default_user or owner_of(path)

    def _make_durable(self, files: Sequence[Claimed]) -> None:
        """What is acknowledged must survive a power cut, as a file too."""
        if len(files) >= MANY:
            sync_file_system(self.paths.intake)
        else:
            for file in files:
                with suppress(FileNotFoundError):
                    sync_file(file.path)
        if files:
            sync_directory(self.paths.intake)

    def _enter(self, submissions: Sequence[Submission]) -> list[Admitted]:
        if not submissions:
            return []
        limits = self.config.limits
        now = self.clock.wall_ms()
        return self.store.add(submissions, now=now, warn_at=limits.pending_warn, refuse_at=limits.pending_max)

    def _accept(self, file: Claimed) -> None:
        """Move the file to where it stays until its task is archived."""
        target = accepted_path(self.paths, file.id, file.name)
        make_directory(os.path.dirname(target))
        with suppress(FileNotFoundError):
            os.rename(file.path, target)

    def _tell(self, one: Admitted, submission: Submission) -> None:
        if one.new:
            self.log.info("queued", task=one.id, user=submission.spec.user, source=one_line(submission.spec.source))
        if one.warning:
            self.log.warning("many_pending", task=one.id, user=submission.spec.user, warning=one.warning)

    def _reject_all(self, refusals: Sequence[tuple[Claimed, str]]) -> list[Rejected]:
        """Refuse one by one; what cannot be refused now stays where it is, to be refused at the next look."""
        rejected, left = [], []
        for file, error in refusals:
            try:
                rejected.append(Rejected(id=file.id, path=self._reject(file, error), error=error))
            except FileNotFoundError:
                continue  # somebody else has refused it, and told
            except OSError as trouble:
                left.append(f"{file.name}: {error}; it stays at {file.path}, since it cannot be moved away: {trouble}")
                self.log.error("cannot_reject", file=one_line(file.name), error=str(trouble))
            else:
                self._tell_of_refusal(file, error)
        if left:
            raise CannotRejectError("\n".join(left))
        return rejected

    def _tell_of_refusal(self, file: Claimed, error: str) -> None:
        # The id is told, but the event is not a task's: there is none that could be forgotten with it.
        detail = {"id": file.id, "file": one_line(file.name), "error": one_line(error, 1000)}
        self.log.warning("rejected", **detail)
        with suppress(StoreBusyError, StoreUnavailableError):  # the note beside the file and the log say the same
            self.store.note(Event(at=self.clock.wall_ms(), event="rejected", detail=detail))

    def _reject(self, file: Claimed, error: str) -> str:
        """Put the file beside a note that says what is wrong; returns where. It is not tried again."""
        make_directory(self.paths.rejected)
        text = f"{visible(error)}\n\nCorrect the file, then move it back into the spool.\n"
        with self._alone_in_rejected():
            os.lstat(file.path)  # somebody else may have refused it meanwhile: then there is nothing to explain
            target = self._free_name(file)
            write_atomically(target + ".error", text.encode())
            os.rename(file.path, target)
        return target

    @contextmanager
    def _alone_in_rejected(self) -> Iterator[None]:
        """Two processes that choose the same free name would lose one of the files."""
        with opened(self.paths.rejected, os.O_RDONLY | os.O_DIRECTORY) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield

    def _free_name(self, file: Claimed) -> str:
        """A name in rejected/ that keeps the old ones: the file's own, or with the id before it."""
        room = _NAME_MAX - len(".error")
        name = os.fsdecode(os.fsencode(file.name)[-room:]) or "unnamed"
        path = os.path.join(self.paths.rejected, name)
        # A NAME.error is a note that may be replaced, unless a note of its own says that it is somebody's file.
        if not os.path.lexists(path) and not os.path.lexists(f"{path}.error.error"):
            return path
        return os.path.join(self.paths.rejected, os.fsdecode(os.fsencode(f"{file.id}-{name}")[:room]))


def claimed_path(paths: Paths, task_id: str, name: str) -> str:
    """Where a file waits between being claimed and being accepted."""
    room = _NAME_MAX - len(task_id) - len(_SEPARATOR)
    kept = os.fsdecode(os.fsencode(name)[-room:])
    return os.path.join(paths.intake, f"{task_id}{_SEPARATOR}{kept}")


def claimed_in(paths: Paths) -> list[Claimed]:
    """The files that wait between being claimed and being accepted."""
    found = []
    for entry in names_in(paths.intake):
        task_id, separator, name = entry.partition(_SEPARATOR)
        if separator and is_id(task_id):
            found.append(Claimed(id=task_id, path=os.path.join(paths.intake, entry), name=name))
    return found


def accepted_path(paths: Paths, task_id: str, name: str) -> str:
    """Where an accepted task's file is: in the folder of its hour, with the ending that says its format."""
    ending = os.path.splitext(name)[1].lower()
    return os.path.join(paths.accepted, bucket(task_id), task_id + ending)


def owner_of(path: str) -> str:
    """The name of a file's owner."""
    return user_name(os.lstat(path).st_uid)
