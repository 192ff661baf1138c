"""The spawner: a small process that has loaded what a supervisor needs, and has each request's run supervised.

A fresh interpreter would cost tens of milliseconds per run, a fork costs a few, and a supervisor whose run was brief
takes the next one for nothing. It is single-threaded, holds no database, and hears its requests (run directories) on
the socket it inherits as standard input, or, as a service of its own, from whoever connects. When nobody can ask for
anything any more, it stays as long as it has supervisors: whatever a killed supervisor leaves behind comes to it, and
is ended.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from fairlead.base.bell import ring
from fairlead.base.files import write_all
from fairlead.conductor import rundir, tree
from fairlead.conductor.prctl import become_subreaper
from fairlead.conductor.supervisor import LONGEST_REQUEST, serve

#: Supervisors without a run stay until nothing has happened for so many seconds, and so many of them: in a row of short
#: tasks each saves a fork.
IDLE = 1.0
MOST_IDLE = 16
#: What cannot be started for want of descriptors or processes is tried again when some may be free, and this often.
RETRY = 0.1


class Child:
    """A supervisor as its spawner knows it."""

    def __init__(self, pid: int, line: socket.socket, run_dir: bytes) -> None:
        self.pid = pid
        #: It says when it is free, and is told its next run; one whose run is not brief hangs up.
        self.line = line
        #: The run that it was told of last; none if it is free.
        self.run_dir = run_dir


class Spawner:
    """Forks supervisors, hands them further runs, and cleans up behind those that die."""

    def __init__(
        self, bells: str, *, requester: socket.socket | None = None, door: socket.socket | None = None
    ) -> None:
        self.bells = bells
        #: Those who ask for supervisors, by descriptor.
        self.requesters: dict[int, socket.socket] = {}
        #: Where further ones come in.
        self.door = door
        self.asked_to_stop = False
        self.supervisors: dict[int, Child] = {}
        #: Those whose lines are open, by descriptor.
        self.lines: dict[int, Child] = {}
        self.idle: list[Child] = []
        #: Runs that no supervisor could be started for yet, first come first.
        self.late: list[bytes] = []
        self.has_children = False
        #: A supervisor was killed: what it had started comes to us.
        self.may_have_orphans = False
        self.wakeup, self.wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)
        if door is not None:
            self.poll.register(door, select.POLLIN)
        if requester is not None:
            self.admit(requester)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until nobody can ask any more, and the last supervisor is gone with all that it left."""
        become_subreaper()
        self._listen_to_signals()
        gc.collect()
        gc.freeze()  # what is loaded by now is shared with every fork, and stays shared
        ready()
        while (self.door or self.requesters or self.has_children) and not self.asked_to_stop:
            self.pass_once({fd for fd, _ in self.poll.poll(self._pause())})

    def _pause(self) -> float | None:
        """Milliseconds to wait at most."""
        if self.late:
            return RETRY * 1000
        return IDLE * 1000 if self.idle else None

    def pass_once(self, heard: set[int]) -> None:
        """See to whatever has come in."""
        if self.wakeup in heard:
            os.read(self.wakeup, 4096)
            self.reap()
        self.hear_supervisors(heard)
        self.catch_up()
        for requester in [self.requesters[fd] for fd in heard & self.requesters.keys()]:
            self.serve(requester)
        if self.door is not None and self.door.fileno() in heard:
            self.let_in(self.door)
        self.dismiss(MOST_IDLE if heard else 0)

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self.wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # A daemon's own spawner outlives whatever its terminal or its manager sends to all.
        signal.signal(signal.SIGTERM, self._on_stop if self.door else signal.SIG_IGN)

    def _on_stop(self, *_: object) -> None:
        self.asked_to_stop = True

    # ------------------------------------------------------------------ runs to be supervised

    def let_in(self, door: socket.socket) -> None:
        """Somebody knocks. Without a descriptor for him he has to wait, and whoever is not needed goes."""
        try:
            self.admit(door.accept()[0])
        except OSError as error:
            _complain(f"cannot let anybody in: {error}")
            self.dismiss(0)
            time.sleep(RETRY)

    def admit(self, requester: socket.socket) -> None:
        """Hear somebody who asks for supervisors."""
        self.requesters[requester.fileno()] = requester
        self.poll.register(requester, select.POLLIN)

    def serve(self, requester: socket.socket) -> None:
        """Have the next run supervised, or note that the requester is gone."""
        run_dir = requester.recv(LONGEST_REQUEST)
        if run_dir:
            self.start(run_dir)
        else:
            self.close(requester)

    def start(self, run_dir: bytes) -> None:
        """Have a run supervised, by one who has none or by a new one."""
        if not self.hand_over(run_dir) and not self.fork(run_dir):
            self.late.append(run_dir)

    def catch_up(self) -> None:
        """Have the runs supervised that had to wait, as far as that goes by now."""
        while self.late and (self.hand_over(self.late[0]) or self.fork(self.late[0])):
            del self.late[0]

    def close(self, requester: socket.socket) -> None:
        """He asks for nothing any more. Where nobody else can, supervisors go when their runs are over."""
        self.poll.unregister(requester)
        del self.requesters[requester.fileno()]
        requester.close()
        if self.door is None and not self.requesters:
            for supervisor in list(self.lines.values()):
                self.hang_up(supervisor)

    def hand_over(self, run_dir: bytes) -> bool:
        """Give a run to a supervisor that has none; False if there is no such one."""
        while self.idle:
            supervisor = self.idle.pop()
            with suppress(OSError):  # that one was killed a moment ago
                supervisor.line.send(run_dir)
                supervisor.run_dir = run_dir
                return True
        return False

    def fork(self, run_dir: bytes) -> bool:
        """Start a supervisor, with this as its first run; False if the machine has no room for one now."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._fork(ours, theirs, run_dir)
        except OSError as error:
            if run_dir not in self.late:
                _complain(f"cannot start a supervisor for {os.fsdecode(run_dir)} yet: {error}")
            return False
        return True

    def _fork(self, ours: socket.socket, theirs: socket.socket, run_dir: bytes) -> None:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            raise
        if pid == 0:
            ours.close()
            self._become_supervisor(theirs, run_dir)
        supervisor = Child(pid, ours, run_dir)
        self.supervisors[pid] = self.lines[ours.fileno()] = supervisor
        self.has_children = True
        self.poll.register(ours, select.POLLIN)

    def _become_supervisor(self, line: socket.socket, run_dir: bytes) -> None:
        """In the child: leave everything of the spawner behind, and never come back."""
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for other in (self.door, *self.requesters.values(), *(child.line for child in self.lines.values())):
                if other is not None:
                    other.close()
            os.close(self.wakeup)
            os.close(self.wakeup_writer)
            serve(line, run_dir)
        finally:
            os._exit(0)

    # ------------------------------------------------------------------ supervisors without a run

    def hear_supervisors(self, ready: set[int]) -> None:
        """Note who has become free, and who has hung up."""
        for supervisor in [self.lines[fd] for fd in ready & self.lines.keys()]:
            if self._is_free(supervisor):
                supervisor.run_dir = b""
                self.idle.append(supervisor)
            else:
                self.hang_up(supervisor)

    def _is_free(self, supervisor: Child) -> bool:
        try:
            return bool(supervisor.line.recv(LONGEST_REQUEST))
        except ConnectionResetError:
            self.start(supervisor.run_dir)  # killed before it had read of its next run
            return False

    def dismiss(self, most: int) -> None:
        """Let supervisors without a run go, down to so many."""
        while len(self.idle) > most:
            self.hang_up(self.idle[0])

    def hang_up(self, supervisor: Child) -> None:
        """Have nothing more to do with a supervisor, but for its end."""
        self.poll.unregister(supervisor.line)
        del self.lines[supervisor.line.fileno()]
        supervisor.line.close()
        self.idle = [other for other in self.idle if other is not supervisor]

    # ------------------------------------------------------------------ supervisors that have ended

    def reap(self) -> None:
        """Collect what has ended, then end what a dead supervisor has left.

        After a death this is done again with every end until nothing is found: a list of children may miss one while
        another of them ends, and that end brings us here again.
        """
        deaths = [supervisor for supervisor, status in self._ended() if supervisor and status != 0]
        if deaths or self.may_have_orphans:
            self.may_have_orphans = self.sweep() or bool(deaths)
        for supervisor in deaths:
            if supervisor.run_dir:
                rundir.leave_trace(os.fsdecode(supervisor.run_dir))
        if deaths:
            self.tell_of_death()

    def _ended(self) -> Iterator[tuple[Child | None, int]]:
        """Every child that has ended, if it was a supervisor, and how it ended."""
        try:
            while (pid_and_status := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = pid_and_status
                yield self.supervisors.pop(pid, None), status
        except ChildProcessError:
            self.has_children = False

    def sweep(self) -> bool:
        """End orphans of dead supervisors, with all below them; whether there were any.

        A living supervisor's orphans go to it, never to us; one that ended well has left none.
        """
        try:
            orphans = [child for child in tree.children_of(os.getpid()) if child not in self.supervisors]
        except OSError:
            return True  # no descriptor to look with: they are found with the next end
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
    requester = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    Spawner(sys.argv[1], requester=requester).run()
    sys.exit(0)


if __name__ == "__main__":
    main()
