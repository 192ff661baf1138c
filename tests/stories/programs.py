"""What the stories run in processes of their own."""

import fcntl
import os
import signal
import sys
import time

from tests.support.programs import main, say

from fairlead.base.logs import open_log
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.config.paths import find_paths
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.daemon.spool import Spool
from fairlead.queue.instance import Instance


def dispatch() -> None:
    """A dispatcher that makes pass after pass as fast as it can, until its input is closed."""
    paths = find_paths()
    instance = Instance(paths, os.environ, open_log(paths.log_file, "dispatcher"))
    spool = Spool(paths, instance.clock, settle=0.0, inotify=False)
    dispatcher = Dispatcher(instance, ProcessLauncher(paths.error_log, paths.bells), spool)
    instance.apply_shares()
    dispatcher.reconcile()
    say("ready")
    os.set_blocking(0, False)
    while _is_open():
        dispatcher.run_once()
        time.sleep(0.001)
    dispatcher.close()


def _is_open() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


def leave_daemon(lock: str, pid_file: str) -> None:
    """An agent that leaves a deaf process behind, in a session of its own, which holds a file's lock for life."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _linger(lock, pid_file)
        os._exit(0)
    os.wait()
    while not os.path.exists(pid_file):
        time.sleep(0.005)


def _linger(lock: str, pid_file: str) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with open(pid_file + ".new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(pid_file + ".new", pid_file)
    time.sleep(3600)


def look_for_daemon(lock: str) -> None:
    """An agent that fails if somebody still holds the file's lock."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("somebody of the last run is alive")


if __name__ == "__main__":
    main(globals())
