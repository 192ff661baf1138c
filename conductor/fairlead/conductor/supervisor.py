"""The supervisor: starts one agent, stays with it to the end, and writes that end down as its last act.

It is started with a run directory as its one argument; everything it needs is in there. It outlives daemon and
watchdog. Its steps, in order:

1. become the one inhabitant of the run directory (a flock until the end), or leave;
2. write `running`, durably: from here on the run counts as started;
3. start the agent in a session of its own;
4. until nothing of it is left: collect output, beat, enforce the time limit, hear a request to stop;
5. write the end, durably, and ring the watchdog.

A supervisor that was forked by the spawner may take another run after a brief one: nobody can have had the time to
decide that it has to be killed for the old one.
"""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from socket import socket

from fairlead.base.clock import SystemClock
from fairlead.base.files import write_all
from fairlead.conductor import rundir
from fairlead.conductor.meta import Meta, MissingMetaError, read_meta
from fairlead.conductor.orders import read_launch
from fairlead.conductor.prctl import become_subreaper
from fairlead.conductor.run import Run
from fairlead.queue.states import Status

#: What is said between spawner and supervisors is no longer than this: a path, or the word that one is free.
LONGEST_REQUEST = 65536
FREE = b"free"


def serve(line: socket, run_dir: bytes) -> None:
    """Supervise one run, and further ones for as long as they are brief and the spawner has any."""
    with suppress(ConnectionError):  # the spawner has hung up
        while run_dir and run_guarded(os.fsdecode(run_dir), line.close):
            line.send(FREE)
            run_dir = line.recv(LONGEST_REQUEST)


def supervise(run_dir: str, no_other: Callable[[], None] = lambda: None) -> bool:
    """Look after the run in this directory, if it is still to be looked after; True if another may follow.

    `no_other` is called as soon as it is clear that none may.
    """
    become_subreaper()
    if not os.path.isdir(run_dir):
        return True
    with rundir.only_inhabitant(run_dir) as alone:
        if not alone or not (meta := _claimed(run_dir)):
            return True
        run = Run(run_dir, meta, read_launch(run_dir), SystemClock(), no_other)
        run.play()
        run.leave()
        return run.is_brief


def _claimed(run_dir: str) -> Meta | None:
    """The run as its dispatcher described it; None if somebody else ran it, or took it back."""
    try:
        meta = read_meta(run_dir)
    except MissingMetaError:
        return None
    return meta if meta.status == Status.CLAIMED else None


def main() -> None:
    """Entry point for launchers that start a fresh interpreter."""
    run_guarded(os.path.abspath(sys.argv[1]))


def run_guarded(run_dir: str, no_other: Callable[[], None] = lambda: None) -> bool:
    """Supervise, and leave a trace in the run directory if that goes wrong; True if another run may follow."""
    try:
        return supervise(run_dir, no_other)
    except BaseException:  # noqa: BLE001 - the trace is all that is left; the watchdog sees the death
        with suppress(OSError):
            fd = os.open(os.path.join(run_dir, rundir.TRACE), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            write_all(fd, traceback.format_exc().encode())
        os._exit(1)


if __name__ == "__main__":
    main()
