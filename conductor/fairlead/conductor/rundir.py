"""Run directories: where they are, how one is made, and who lives in one."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from fairlead.base.files import names_in, opened, sync_directory, sync_file
from fairlead.conductor import launch as launching
from fairlead.conductor.launch import Launch
from fairlead.conductor.meta import NAME as META
from fairlead.conductor.meta import Meta

LOCK = "supervisor.lock"
CANCEL = "cancel.json"
STDOUT = "stdout.log"
STDERR = "stderr.log"


def active_dir(conductor: str, project: str, task_id: str, attempt: int) -> str:
    """Where a running attempt lives. Each attempt has its own, so that a late comer of an old one finds nothing."""
    return os.path.join(conductor, project, "active", f"{task_id}.{attempt}")


def finished_dir(conductor: str, project: str, task_id: str, attempt: int) -> str:
    """Where an ended attempt's logs are kept until they are pruned."""
    return os.path.join(conductor, project, "finished", f"{task_id}.{attempt}")


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
        yield from (os.path.join(place, name) for name in names_in(place))


def create(run_dir: str, meta: Meta, launch: Launch, prompt: str) -> None:
    """Make the directory and what the supervisor reads. The supervisor makes it durable before it starts."""
    os.makedirs(run_dir, mode=0o700)
    _put(run_dir, META, msgspec.json.encode(meta))
    _put(run_dir, launching.NAME, msgspec.json.encode(launch))
    if prompt:
        _put(run_dir, launching.PROMPT, prompt.encode())


def make_durable(run_dir: str) -> None:
    """Let the whole directory survive a power cut: its files, its names, and its own name."""
    for name in os.listdir(run_dir):
        sync_file(os.path.join(run_dir, name))
    sync_directory(run_dir)
    sync_directory(os.path.dirname(run_dir))


def discard(run_dir: str) -> None:
    """Remove a directory that nothing ever ran in."""
    shutil.rmtree(run_dir, ignore_errors=True)


def finish(conductor: str, project: str, task_id: str, attempt: int) -> None:
    """Move an ended attempt's directory out of the way of the living."""
    target = finished_dir(conductor, project, task_id, attempt)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.rename(active_dir(conductor, project, task_id, attempt), target)


@contextmanager
def only_inhabitant(run_dir: str) -> Iterator[bool]:
    """Be the one who may speak for this run: True if nobody else is, as long as the block lasts.

    The supervisor holds this for its whole life; the kernel frees it at its death. Whoever gets it knows that
    there is no supervisor, and that none can start meanwhile.
    """
    with opened(os.path.join(run_dir, LOCK), os.O_RDWR | os.O_CREAT) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _put(run_dir: str, name: str, data: bytes) -> None:
    with opened(os.path.join(run_dir, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY) as fd:
        os.write(fd, data)
