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
from contextlib import suppress

from fairlead.conductor import tree
from fairlead.conductor.supervisor import become_subreaper, run_guarded

_REQUEST = 65536


class Spawner:
    """Forks supervisors and cleans up behind those that die."""

    def __init__(self, requests: socket.socket) -> None:
        self.requests: socket.socket | None = requests
        self.supervisors: set[int] = set()
        self.wakeup, self.wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve until the daemon is gone and the last supervisor too."""
        become_subreaper()
        self._listen_to_signals()
        gc.collect()
        gc.freeze()  # what is loaded by now is shared with every fork, and stays shared
        while self.requests or self.supervisors:
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
        run_dir = requests.recv(_REQUEST)
        if not run_dir:
            requests.close()
            self.requests = None
            return
        pid = os.fork()
        if pid == 0:
            self._become_supervisor(requests, os.fsdecode(run_dir))
        self.supervisors.add(pid)

    def _become_supervisor(self, requests: socket.socket, run_dir: str) -> None:
        """In the child: leave everything of the spawner behind."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        requests.close()
        os.close(self.wakeup)
        os.close(self.wakeup_writer)
        run_guarded(run_dir)
        os._exit(0)

    def reap(self) -> None:
        """Collect ended supervisors; whatever else is a child of ours was left behind by one that was killed."""
        ended = False
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                ended = ended or pid in self.supervisors
                self.supervisors.discard(pid)
        if ended:
            self.sweep()

    def sweep(self) -> None:
        """End orphans of dead supervisors. A living supervisor's orphans go to it, never to us."""
        while orphans := [pid for pid in tree.children_of(os.getpid()) if pid not in self.supervisors]:
            tree.send(orphans, signal.SIGKILL)
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def main() -> None:
    """Entry point: the socket is standard input."""
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    Spawner(requests).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
