"""Run directories: where they are, how one is made, and who lives in one."""

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from fairlead.base.files import make_directory, names_in, opened, remove_all, sync_directory, sync_file, write_all
from fairlead.conductor import orders
from fairlead.conductor.meta import NAME as META
from fairlead.conductor.meta import Meta, write_meta
from fairlead.conductor.orders import Launch
from fairlead.conductor.output import STDOUT

CANCEL = "cancel.json"
#: Asks a supervisor to look for that note. Without one it is nothing: it may have been meant for an earlier run.
LOOK_FOR_NOTE = signal.SIGUSR1
#: What a supervisor leaves that met an error it did not expect.
TRACE = "supervisor.err"


def active_dir(conductor: str, project: str, task_id: str, attempt: int) -> str:
    """Where a running attempt lives. Each attempt has its own, so that a late comer of an old one finds nothing."""
    return os.path.join(conductor, project, "active", f"{task_id}.{attempt}")


def finished_dir(conductor: str, project: str, task_id: str, attempt: int) -> str:
    """Where an ended attempt's logs are kept until they are pruned."""
    return os.path.join(conductor, project, "finished", f"{task_id}.{attempt}")


def _put_away(run_dir: str) -> str:
    """Where this directory will be once its attempt is over."""
    active, name = os.path.split(run_dir)
    return os.path.join(os.path.dirname(active), "finished", name)


def find_dir(conductor: str, project: str, task_id: str, attempt: int) -> str | None:
    """The attempt's directory, wherever it is by now."""
    for place in (active_dir, finished_dir):
        path = place(conductor, project, task_id, attempt)
        if os.path.isdir(path):
            return path
    return None


def all_active(conductor: str) -> Iterator[str]:
    """Every run directory that is not finished."""
    for project in names_in(conductor):
        place = os.path.join(conductor, project, "active")
        with suppress(NotADirectoryError):  # a stray file
            yield from (os.path.join(place, name) for name in names_in(place))


def make(run_dir: str) -> None:
    """Make the directory itself, whose name is not durable yet, in a place that is."""
    make_directory(os.path.dirname(run_dir))
    os.mkdir(run_dir, 0o700)


def create(run_dir: str, meta: Meta, launch: Launch, prompt: str) -> None:
    """Make the directory and what the supervisor reads. Nothing of it is durable before `announce`."""
    make(run_dir)
    if os.path.lexists(_put_away(run_dir)):
        os.rmdir(run_dir)
        raise FileExistsError(f"{run_dir} was taken back before it was made")
    _put(run_dir, META, msgspec.json.encode(meta))
    _put(run_dir, orders.NAME, msgspec.json.encode(launch))
    _put(run_dir, orders.PROMPT, prompt.encode())


def announce(run_dir: str, meta: Meta) -> None:
    """Write meta.json so that it survives a power cut, with the name of the directory it is in.

    That much must be known of a run that may have started; its other files serve the living alone. Syncing after the
    rename spares a journal commit: a power cut in between may leave half a file, but then nothing has started, and
    what was replaced was not durable either.
    """
    write_meta(run_dir, meta, synced=False)
    sync_file(os.path.join(run_dir, META))
    sync_directory(run_dir)
    sync_directory(os.path.dirname(run_dir))


def discard(run_dir: str) -> None:
    """Put a directory away that nothing ever ran in.

    It is kept with the finished ones until it is pruned: a dispatcher that slept since its claim, and wakes up to
    create this very directory, must find that it came too late.
    """
    target = _put_away(run_dir)
    with suppress(OSError):  # what stays is found again by those who look for runs without a task
        if os.path.lexists(target):
            remove_all(os.path.join(run_dir, name) for name in names_in(run_dir))
            os.rmdir(run_dir)
        else:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            os.rename(run_dir, target)


def finish(conductor: str, project: str, task_id: str, attempt: int) -> None:
    """Move an ended attempt's directory out of the way of the living."""
    target = finished_dir(conductor, project, task_id, attempt)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.rename(active_dir(conductor, project, task_id, attempt), target)


@contextmanager
def only_inhabitant(run_dir: str) -> Iterator[bool]:
    """Be the one who may speak for this run: True if nobody else is, as long as the block lasts.

    The supervisor holds this for as long as it looks after the run; the kernel frees it at its death. Whoever gets it
    knows that there is no supervisor, and that none can start meanwhile. It is a lock on the directory itself: nothing
    that is in there, and that an agent could remove, is needed for it.
    """
    with opened(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW) as fd:
        yield _locked(fd) and is_at(fd, run_dir)


def move_in(run_dir: str) -> int | None:
    """Make a directory anew that an agent removed or replaced, and lock it; none if somebody else lives there by now.

    Where the whole instance is gone, nobody is to bring it back.
    """
    make_directory(os.path.dirname(run_dir))
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(run_dir)
    with suppress(FileExistsError):
        os.mkdir(run_dir, 0o700)
    fd = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if _locked(fd):
        return fd
    os.close(fd)
    return None


def is_put_away(run_dir: str) -> bool:
    """Whether the attempt is over and recorded, or was taken back: its directory has been moved."""
    return os.path.lexists(_put_away(run_dir))


def has_home(run_dir: str) -> bool:
    """Whether there is still an instance that the run could belong to."""
    return os.path.isdir(_conductor(run_dir))


def regain(run_dir: str) -> None:
    """Take a directory's rights back that its agent, who has the same uid, has given away."""
    with suppress(FileNotFoundError):
        mode = os.lstat(run_dir).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:  # noqa: PLR2004 - rwx for its owner
            os.chmod(run_dir, 0o700)


def leave_trace(run_dir: str) -> None:
    """A supervisor was killed whose directory was removed or replaced: let it say that the run has started.

    A log in it is what tells a run that has started from one that never did; a new directory appears with it.
    """
    beside = os.path.join(_conductor(run_dir), f".{os.path.basename(run_dir)}.trace")
    with suppress(OSError):  # the log is there, somebody else has made the directory, or took the whole place away
        if is_put_away(run_dir) or os.path.lexists(os.path.join(run_dir, META)):
            return
        if os.path.lexists(run_dir):
            _put(run_dir, STDOUT, b"")
            return
        os.mkdir(beside, 0o700)
        _put(beside, STDOUT, b"")
        make_directory(os.path.dirname(run_dir))
        os.rename(beside, run_dir)


def _conductor(run_dir: str) -> str:
    """The directory that all runs of an instance are under."""
    return os.path.dirname(os.path.dirname(os.path.dirname(run_dir)))


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(fd: int, path: str) -> bool:
    """Whether others who open the path meet this directory: not if it was cleared away meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _put(run_dir: str, name: str, data: bytes) -> None:
    with opened(os.path.join(run_dir, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY) as fd:
        write_all(fd, data)
