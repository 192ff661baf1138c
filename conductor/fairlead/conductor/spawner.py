"""The spawner: a small process that has loaded what a supervisor needs, and forks one for each request.

A fresh interpreter would cost tens of milliseconds per run, a fork costs two. It is single-threaded, holds no
database, and hears its requests (run directories) on the socket it inherits as standard input. When the daemon
goes, it stays as long as it has supervisors: whatever a killed supervisor leaves behind comes to it, and is ended.
"""

import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress

from fairlead.base.bell import ring
from fairlead.base.files import write_all
from fairlead.conductor import tree
from fairlead.conductor.supervisor import become_subreaper, run_guarded

_REQUEST = 65536


class Spawner:
    """Forks supervisors and cleans up behind those that die."""

    def __init__(self, requests: socket.socket, bells: str) -> None:
        self.requests: socket.socket | None = requests
        self.bells = bells
        self.supervisors: set[int] = set()
        self.has_children = False
        #: A supervisor was killed: what it had started comes to us.
        self.may_have_orphans = False
        self.wakeup, self.wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve until the daemon is gone, and the last supervisor with all that it left."""
        become_subreaper()
        self._listen_to_signals()
        gc.collect()
        gc.freeze()  # what is loaded by now is shared with every fork, and stays shared
        while self.requests or self.has_children:
            ready = {fd for fd, _ in self._poll().poll()}
            if self.wakeup in ready:
                os.read(self.wakeup, 4096)
                self.reap()
            if self.requests and self.requests.fileno() in ready:
                self.serve(self.requests)

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self.wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def _poll(self) -> "select.poll":
        poll = select.poll()
        poll.register(self.wakeup, select.POLLIN)
        if self.requests:
            poll.register(self.requests, select.POLLIN)
        return poll

    def serve(self, requests: socket.socket) -> None:
        """Start a supervisor for the next request, or note that the daemon is gone."""
        run_dir = os.fsdecode(requests.recv(_REQUEST))
        if not run_dir:
            requests.close()
            self.requests = None
            return
        try:
            pid = os.fork()
        except OSError as error:
            # Nobody claims that run directory: the watchdog takes it back, and the task is tried again.
            _complain(f"cannot start a supervisor for {run_dir}: {error}")
            return
        if pid == 0:
            self._become_supervisor(requests, run_dir)
        self.supervisors.add(pid)
        self.has_children = True

    def _become_supervisor(self, requests: socket.socket, run_dir: str) -> None:
        """In the child: leave everything of the spawner behind, and never come back."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            requests.close()
            os.close(self.wakeup)
            os.close(self.wakeup_writer)
            run_guarded(run_dir)
        finally:
            os._exit(0)

    def reap(self) -> None:
        """Collect what has ended, then end what a dead supervisor has left.

        After a death this is done again with every end until nothing is found: a list of children may miss one while
        another of them ends, and that end brings us here again.
        """
        deaths = [status for is_supervisor, status in self._ended() if is_supervisor and status != 0]
        if deaths or self.may_have_orphans:
            self.may_have_orphans = self.sweep() or bool(deaths)
        if deaths:
            self.tell_of_death()

    def _ended(self) -> Iterator[tuple[bool, int]]:
        """Every child that has ended: whether it was a supervisor, and how it ended."""
        try:
            while (pid_and_status := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = pid_and_status
                yield pid in self.supervisors, status
                self.supervisors.discard(pid)
        except ChildProcessError:
            self.has_children = False

    def sweep(self) -> bool:
        """End orphans of dead supervisors, with all below them; whether there were any.

        A living supervisor's orphans go to it, never to us; one that ended well has left none.
        """
        orphans = [child for child in tree.children_of(os.getpid()) if child not in self.supervisors]
        for orphan in orphans:
            tree.send([*tree.identify([orphan]), *tree.below(orphan)], signal.SIGKILL)
        return bool(orphans)

    def tell_of_death(self) -> None:
        """A supervisor that was killed can tell nobody: let the watchdog look."""
        with suppress(OSError):
            ring(self.bells, "watchdog", "supervisor died")


def _complain(sentence: str) -> None:
    """To the daemon's error log, if that is still there."""
    with suppress(OSError):
        write_all(sys.stderr.fileno(), f"fairlead spawner: {sentence}\n".encode("utf-8", "backslashreplace"))


def main() -> None:
    """Entry point: the socket is standard input."""
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    Spawner(requests, sys.argv[1]).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
