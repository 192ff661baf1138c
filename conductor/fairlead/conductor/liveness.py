"""Proof of life and death of a run."""

import os
from contextlib import suppress
from enum import StrEnum

from fairlead.base.files import opened
from fairlead.base.identity import ProcessId, boot_id, host
from fairlead.conductor import output, rundir, tree
from fairlead.conductor.meta import VOID, CorruptMetaError, Meta, read_meta, write_meta
from fairlead.conductor.orders import MARKER
from fairlead.conductor.prctl import looks_after
from fairlead.queue.states import Status

#: Spawners, whose forks supervisors are, and supervisors with an interpreter of their own are modules of this package.
_PROGRAMS = b"fairlead.conductor."


class Void(StrEnum):
    """What came of taking back a run that seems not to have started."""

    #: It never started, and never will.
    NEVER_STARTED = "never_started"
    #: A supervisor lives in it, or somebody else is taking it back at this moment.
    INHABITED = "inhabited"
    #: It did start.
    STARTED = "started"


def void(run_dir: str, lock_id: str | None = None) -> Void:
    """Take a run back if its agent never started, and see to it that it never will.

    With the id of its lock it is known, too, whether a directory that is not there was made and removed: by its agent.

    Whoever is about to create the directory, to write its meta.json or to supervise it finds that it came too late:
    the directory is made, the flock is held, and `void` is written while it is. The word stands in meta.json itself,
    so that there is no order of removing the directory's files in which it could be missed.
    """
    if lock_id and not os.path.lexists(run_dir) and is_seen(lock_id):
        return Void.STARTED
    with suppress(FileExistsError):
        rundir.make(run_dir)
    try:
        with rundir.only_inhabitant(run_dir) as alone:
            return _void_alone(run_dir) if alone else Void.INHABITED
    except FileNotFoundError:
        return Void.INHABITED  # cleared away under our hands, by somebody who has taken it back himself
    except NotADirectoryError:
        if os.path.lexists(run_dir):
            return Void.STARTED  # nobody but an agent puts something else there
        raise


def is_seen(lock_id: str) -> bool:
    """Whether something of a run is alive: its supervisor, or what bears its mark."""
    return find_supervisor(lock_id) is not None or bool(tree.marked(MARKER, lock_id))


def find_supervisor(lock_id: str) -> ProcessId | None:
    """Who looks after a run whose directory tells nothing: of our own processes the one that says so.

    Its agent bears the same name for a moment before it is one: the older of them is meant.
    """
    found = tree.identify(pid for pid in tree.all_pids() if looks_after(pid, lock_id) and _is_ours(pid))
    return min(found, key=lambda process: (process.start, process.pid), default=None)


def _is_ours(pid: int) -> bool:
    with suppress(OSError), opened(f"/proc/{pid}/cmdline", os.O_RDONLY) as fd:
        return os.fstat(fd).st_uid == os.geteuid() and _PROGRAMS in os.read(fd, 4096)
    return False  # gone


def _void_alone(run_dir: str) -> Void:
    try:
        meta = read_meta(run_dir)
    except CorruptMetaError:
        # The logs are opened before an agent starts: without them none has.
        if os.path.lexists(os.path.join(run_dir, output.STDOUT)):
            return Void.STARTED
        meta = _blank(run_dir)
    if meta.status not in {Status.CLAIMED, VOID}:
        return Void.STARTED
    meta.status = VOID
    write_meta(run_dir, meta, synced=False)
    return Void.NEVER_STARTED


def _blank(run_dir: str) -> Meta:
    """The meta data of a run that nobody has described yet, and now nobody will."""
    return Meta(
        id=os.path.basename(run_dir),
        status=VOID,
        user="",
        project="",
        agent="",
        attempt=0,
        lock_id="",
        token=0,
        host=host(),
        boot_id=boot_id(),
        claimed_boot=0.0,
        claimed_at=0,
    )
