"""Taking claimed files into the store: the one way in, for the daemon's intake and for `submit`.

A claimed file lies in the intake under its task's id and the name of who handed it in. From there it is parsed, made
durable, entered into the store with one commit for the batch, and moved to accepted/, where it stays until the task is
archived. A crash at any point leaves it in one of the two places, and doing it again is a no-op.

The files of one submission are entered together or not at all. Until they are, they have temporary names: intake takes
such a file only if the store knows its id, and one that nobody knows is pruned with the half-written ones.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import Struct

from fairlead.base.clock import Clock
from fairlead.base.errors import FairleadError
from fairlead.base.files import (
    is_temporary,
    make_directory,
    names_in,
    opened,
    read_plain,
    remove,
    sync_directory,
    sync_file_system,
    sync_files,
    write_atomically,
)
from fairlead.base.identity import user_name
from fairlead.base.ids import created_at, is_id, new_id
from fairlead.base.logs import Log
from fairlead.base.text import one_line, visible
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.accepted import SEPARATOR, Accepted
from fairlead.queue.archive import Archive
from fairlead.queue.errors import NoSuchTaskError, StoreBusyError, StoreUnavailableError
from fairlead.queue.rights import check_member, check_submitter
from fairlead.queue.store import Admitted, Store, Submission
from fairlead.queue.task import Event, is_express
from fairlead.queue.taskfile import Parsed, parse_task

#: From this many files on, one syncfs is cheaper than an fsync each.
MANY = 8
_NAME_MAX = 255
#: What makes a name a temporary one; it need not be random, since the id is.
_UNFINISHED = f".{'0' * 16}.tmp"


class CannotRejectError(FairleadError):
    """A wrong file cannot be moved to the refused ones."""


class Claimed(Struct, frozen=True, kw_only=True):
    """A file that was renamed to its task's id."""

    id: str
    path: str
    #: Who handed it in, by the system's word.
    owner: str
    #: The name it was dropped under.
    name: str
    #: Laid there by a submitter: the store may not know it yet.
    is_laid: bool = False


class Rejected(Struct, frozen=True, kw_only=True):
    """A file that was refused, and where it is now."""

    id: str
    path: str
    error: str


class Refusal(NamedTuple):
    """A file that was refused, and why."""

    id: str
    owner: str
    name: str
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
        self.accepted = Accepted(paths.accepted)

    def lay(self, owner: str, name: str, data: bytes, task_id: str, *, tentatively: bool = False) -> Claimed:
        """Put content where a claimed file waits; it is durable once `admit` has taken it in.

        Tentatively: under a name that intake leaves alone unless the store knows the task.
        """
        where = laid_path if tentatively else claimed_path
        path = where(self.paths, task_id, owner, name)
        write_atomically(path, data)
        return Claimed(id=task_id, path=path, owner=owner, name=name)

    def claim(self, name: str) -> Claimed | None:
        """Give a dropped file its id by renaming it; None if somebody else took it, or it cannot be taken."""
        task_id = new_id(self.clock.wall_ms())
        make_directory(self.paths.intake)  # whoever tidies up the spool may have removed it
        dropped = os.path.join(self.paths.spool, name)
        try:
            owner = owner_of(dropped)
            target = claimed_path(self.paths, task_id, owner, name)
            os.rename(dropped, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            # One such file must not keep the others waiting.
            self.log.warning("cannot_take_in", file=one_line(name), error=str(error))
            return None
        return Claimed(id=task_id, path=target, owner=owner, name=name)

    def claimed(self) -> list[Claimed]:
        """Files that were claimed and not yet accepted: by a process that died, or while the store was away."""
        return [file for file in claimed_in(self.paths) if not file.is_laid or self.is_known(file.id)]

    def is_known(self, task_id: str) -> bool:
        """Whether the store has this task."""
        try:
            self.store.get(task_id)
        except NoSuchTaskError:
            return False
        return True

    def is_archived(self, task_id: str) -> bool:
        """Whether there is a record of this task, though the store may have forgotten it."""
        return os.path.exists(Archive(self.paths.archive).path(task_id))

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

    def admit_together(self, files: Sequence[Claimed]) -> Result:
        """The same for one submission: all enter, or none, and then the files are left to whoever laid them there."""
        read = {file.id: self._read(file) for file in files}
        self._make_durable(files)
        admitted = self._enter([submission for submission, _ in read.values()], together=True)
        if not any(one.refusal for one in admitted):
            for file, one in zip(files, admitted, strict=True):
                self._accept(file)
                self._tell(one, read[file.id][0])
            # A name that intake leaves alone must not come back by a power cut after the answer.
            for folder in {os.path.dirname(self._accepted_path(file)) for file in files}:
                sync_directory(folder)
        notes = ((task_id, note) for task_id, (_, several) in read.items() for note in several)
        return Result(admitted=tuple(admitted), notes=tuple(notes))

    def _read(self, file: Claimed) -> tuple[Submission, tuple[str, ...]]:
        data = read_plain(file.path, self.config.limits.task_file_bytes)
        now = self.clock.wall_ms()
        parsed = read_task(data, file.name, file.owner, self.config, self.paths, now)
        express = is_express(parsed.spec.user, parsed.spec.priority, self.config.operators)
        submission = Submission(id=file.id, spec=parsed.spec, created_at=created_at(file.id, now), express=express)
        return submission, tuple(parsed.notes)

    def _make_durable(self, files: Sequence[Claimed]) -> None:
        """What is acknowledged must survive a power cut, as a file too.

        In the system's instance the rest of the file system is not synced along: users write there what they like.
        """
        if len(files) >= MANY and not self.paths.is_system:
            sync_file_system(self.paths.intake)
        else:
            sync_files(file.path for file in files)
        if files:
            sync_directory(self.paths.intake)

    def _enter(self, submissions: Sequence[Submission], *, together: bool = False) -> list[Admitted]:
        if not submissions:
            return []
        limits = self.config.limits
        now = self.clock.wall_ms()
        return self.store.add(
            submissions, now=now, warn_at=limits.pending_warn, refuse_at=limits.pending_max, together=together
        )

    def _accept(self, file: Claimed) -> None:
        """Move the file to where it stays until its task is archived."""
        target = self._accepted_path(file)
        make_directory(os.path.dirname(target))
        with suppress(FileNotFoundError):
            os.rename(file.path, target)

    def _accepted_path(self, file: Claimed) -> str:
        return self.accepted.path(file.id, file.owner, file.name)

    def _tell(self, one: Admitted, submission: Submission) -> None:
        if one.new:
            spec = submission.spec
            self.log.info("queued", task=one.id, user=spec.user, project=spec.project, source=one_line(spec.source))
        if one.warning:
            self.log.warning("many_pending", task=one.id, user=submission.spec.user, warning=one.warning)

    def _reject_all(self, refusals: Sequence[tuple[Claimed, str]]) -> list[Rejected]:
        """Refuse one by one; what cannot be refused now stays where it is, to be refused at the next look."""
        rejected, told, left = [], [], []
        for file, error in refusals:
            try:
                rejected.append(Rejected(id=file.id, path=self._put_aside(file, error), error=error))
            except FileNotFoundError:
                continue  # somebody else has refused it, and told
            except OSError as trouble:
                left.append(f"{file.name}: {error}; it stays at {file.path}, since it cannot be moved away: {trouble}")
                self.log.error("cannot_reject", file=one_line(file.name), error=str(trouble))
            else:
                told.append(Refusal(file.id, file.owner, file.name, error))
        self.tell_of_refusals(told)
        if left:
            raise CannotRejectError("\n".join(left))
        return rejected

    def tell_of_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Let the log and those who follow the events know of files that were refused, with one commit."""
        events = []
        for one in refusals:
            # The id is told, but the event is not a task's: there is none that could be forgotten with it.
            detail = {"id": one.id, "file": one_line(one.name), "error": visible(one.error)[:1000]}
            self.log.warning("rejected", user=one.owner, **detail)
            events.append(Event(at=self.clock.wall_ms(), event="rejected", user=one.owner, detail=detail))
        if events:
            with suppress(StoreBusyError, StoreUnavailableError):  # the note beside the file and the log say the same
                self.store.note(*events)

    def _put_aside(self, file: Claimed, error: str) -> str:
        """Where a refused file is kept. In the system's instance ours was a copy: its user has the file himself."""
        if self.paths.is_system:
            remove(file.path)
            return ""
        return self._reject(file, error)

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


def _tail(name: str, room: int) -> str:
    """The end of a name, which says the format, in so many bytes."""
    return os.fsdecode(os.fsencode(name)[-room:])


def read_task(data: bytes, name: str, owner: str, config: Config, paths: Paths, now: int) -> Parsed:
    """Read a file that its owner hands in, and see that he may."""
    if paths.is_system:
        check_submitter(owner, config)
    parsed = parse_task(data, name, owner, config, now, config_file=paths.config_file, is_system=paths.is_system)
    if paths.is_system:
        check_member(owner, parsed.spec.project, config)
    return parsed


def claimed_path(paths: Paths, task_id: str, owner: str, name: str) -> str:
    """Where a file waits between being claimed and being accepted."""
    begin = f"{task_id}{SEPARATOR}{owner}{SEPARATOR}"
    return os.path.join(paths.intake, begin + _tail(name, _NAME_MAX - len(begin)))


def laid_path(paths: Paths, task_id: str, owner: str, name: str) -> str:
    """Where a file of a submission waits until the store knows it."""
    begin = f".{task_id}{SEPARATOR}{owner}{SEPARATOR}"
    room = _NAME_MAX - len(begin) - len(_UNFINISHED)
    return os.path.join(paths.intake, begin + _tail(name, room) + _UNFINISHED)


def claimed_in(paths: Paths) -> list[Claimed]:
    """The files in the intake, those that submitters laid there included."""
    return [file for entry in names_in(paths.intake) if (file := _as_claimed(paths, entry))]


def _as_claimed(paths: Paths, entry: str) -> Claimed | None:
    is_laid = is_temporary(entry)
    shown = entry[1 : -len(_UNFINISHED)] if is_laid else entry
    task_id, _, rest = shown.partition(SEPARATOR)
    owner, separator, name = rest.partition(SEPARATOR)
    if not separator or not is_id(task_id):
        return None
    return Claimed(id=task_id, path=os.path.join(paths.intake, entry), owner=owner, name=name, is_laid=is_laid)


def owner_of(path: str) -> str:
    """The name of a file's owner."""
    return user_name(os.lstat(path).st_uid)
