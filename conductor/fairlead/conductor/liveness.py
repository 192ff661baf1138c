"""Proof of life and death of a run."""

import os
from enum import StrEnum

from fairlead.base.files import write_atomically
from fairlead.conductor import rundir
from fairlead.conductor.meta import NAME as META
from fairlead.conductor.meta import CorruptMetaError, read_meta
from fairlead.queue.states import Status

VOID = "void"


class Void(StrEnum):
    """What came of taking back a run that seems not to have started."""

    #: It never started, and never will.
    NEVER_STARTED = "never_started"
    #: A supervisor lives in it.
    INHABITED = "inhabited"
    #: It did start.
    STARTED = "started"


def void(run_dir: str) -> Void:
    """Take a run back if its agent never started, and see to it that it never will.

    Whoever is about to create the directory, to write its meta.json or to supervise it finds that it came too late:
    the directory is made, the flock is held, and `void` is written while it is.
    """
    os.makedirs(run_dir, mode=0o700, exist_ok=True)
    with rundir.only_inhabitant(run_dir) as alone:
        if not alone:
            return Void.INHABITED
        if _has_started(run_dir):
            return Void.STARTED
        write_atomically(os.path.join(run_dir, META), b'{"status": "void"}')
    return Void.NEVER_STARTED


def _has_started(run_dir: str) -> bool:
    """Whether an agent may have run here. The logs are opened before it starts, so without them it has not."""
    try:
        status = read_meta(run_dir).status
    except CorruptMetaError:
        return os.path.exists(os.path.join(run_dir, rundir.STDOUT))
    return status != Status.CLAIMED
