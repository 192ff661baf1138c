"""The porter's desk: requests of our own services, one at a time, each with an answer."""

import os
import select
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fairlead.base import frames
from fairlead.base.errors import RefusedError
from fairlead.base.logs import Log
from fairlead.conductor import errands
from fairlead.porter.becoming import become, settle_in
from fairlead.porter.clerk import Clerk
from fairlead.porter.spools import Spools
from fairlead.systemd.transient import Starting, TransientUnits
from fairlead.systemd.unit import NoManagerError, NotStartedError, UnitExistsError, run_of

#: Clerks of one user at the same time: he may stop them, and so keep them from going.
MOST_CLERKS = 8
_CREDENTIALS = struct.Struct("3i")
_STDIO = 3
#: While a unit is being started, somebody looks at least this often whether that takes too long.
_LOOK = 1.0
#: After something that would only go wrong again.
_PAUSE = 0.1


class Desk:
    """Answers whoever is at the socket, if he is one of ours."""

    def __init__(self, door: socket.socket, spools: Spools, units: TransientUnits, uid: int, log: Log) -> None:
        self.door = door
        self.spools = spools
        self.units = units
        self.uid = uid
        self.log = log
        #: The clerks that are out, and whose they are.
        self.clerks: dict[int, str] = {}
        self._lines: dict[int, frames.Frames] = {}
        #: Units that were begun, and who waits for them.
        self._starting: list[tuple[frames.Frames, Starting]] = []
        self._poll = select.poll()
        self._poll.register(door, select.POLLIN)
        self._requests: dict[type, Callable[[Any, list[int]], errands.Answer]] = {
            errands.Hire: self._hire,
            errands.AskState: lambda one, _: self.units.state(_checked(one.name)),
            errands.SignalUnit: self._signal,
            errands.ForgetUnit: self._forget,
            errands.FenceUnit: lambda one, _: errands.Done(self.units.fence(_checked(one.name))),
            errands.ListUnits: lambda _, __: errands.Names(self.units.names()),
            errands.MakeSpools: lambda _, __: errands.Names(self.spools.make()),
        }

    def watch(self, fd: int) -> None:
        """Wake up for this descriptor too."""
        self._poll.register(fd, select.POLLIN)

    def serve(self, seconds: float) -> None:
        """Wait so long at most for requests, and answer those that have come."""
        ready = self._wait(seconds)
        self.reap()
        if self.door.fileno() in ready:
            self._let_in()
        for fd in ready & self._lines.keys():
            self._hear(self._lines[fd])
        while self._tell_of_starts():
            continue  # whoever asked systemd about one may have heard of another

    def _wait(self, seconds: float) -> set[int]:
        bus = self.units.fileno() if self._starting else None
        if bus is None:
            return {fd for fd, _ in self._poll.poll(seconds * 1000)}
        self._poll.register(bus, select.POLLIN)
        try:
            return {fd for fd, _ in self._poll.poll(min(seconds, _LOOK) * 1000)}
        finally:
            self._poll.unregister(bus)

    def reap(self) -> None:
        """Clerks that have gone."""
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.clerks.pop(pid, None)

    def _let_in(self) -> None:
        """The kernel says who has come; strangers are shown out."""
        try:
            line, _ = self.door.accept()
        except OSError as error:  # no descriptor is left: he waits at the door
            self.log.error("cannot_let_in", error=str(error))
            time.sleep(_PAUSE)
            return
        _, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid not in (self.uid, 0):
            self.log.warning("refused", what="porter", uid=uid)
            line.close()
            return
        line.setblocking(False)
        self._lines[line.fileno()] = frames.Frames(line, errands.LONGEST)
        self._poll.register(line, select.POLLIN)

    def _hear(self, line: frames.Frames) -> None:
        try:
            for data in line.take():
                fds = line.take_fds()
                try:
                    self._take_up(line, data, fds)
                finally:
                    frames.close_all(fds)
        except BlockingIOError:
            return
        except (OSError, frames.BadFrameError):
            self._hang_up(line)

    def _hang_up(self, line: frames.Frames) -> None:
        self._poll.unregister(line.sock)
        del self._lines[line.sock.fileno()]
        line.close()

    def _take_up(self, line: frames.Frames, data: bytes, fds: list[int]) -> None:
        """Answer a request; a start takes its time, and is answered when it is done."""
        answer = self._guarded(lambda: self._do(line, errands.decode_request(data), fds))
        if answer is not None:
            self._answer(line.sock, answer)

    def _answer(self, sock: socket.socket, answer: errands.Answer) -> None:
        sock.setblocking(True)
        sock.settimeout(1.0)  # ours listen; one that was stopped must not keep the others waiting
        try:
            frames.send(sock, errands.encode(answer))
        finally:
            sock.setblocking(False)

    def _do(self, line: frames.Frames, request: errands.Request, fds: list[int]) -> errands.Answer | None:
        if not isinstance(request, errands.StartUnit):
            return self._requests[type(request)](request, fds)
        self._starting.append((line, self._start(request, fds)))
        return None

    def _guarded(self, do: Callable[[], errands.Answer | None]) -> errands.Answer | None:
        """Whatever goes wrong with one request is told to who made it, and to nobody else."""
        try:
            return do()
        except UnitExistsError as error:
            return errands.Failed("exists", str(error))
        except NotStartedError as error:
            return errands.Failed("not_started", str(error), error.status)
        except NoManagerError as error:
            return errands.Failed("no_manager", str(error))
        except Exception as error:  # noqa: BLE001 - the others' requests are not to suffer for it
            self.log.warning("refused", what="porter", error=str(error) or type(error).__name__)
            return errands.Failed("refused", str(error))

    # ------------------------------------------------------------------ units

    def _start(self, request: errands.StartUnit, fds: list[int]) -> Starting:
        """A unit of a user who may use the queue, with pipes that are his, so that he may open them anew."""
        order = request.order
        _checked(order.name)
        if order.user is None or len(fds) != _STDIO:
            raise RefusedError("a unit needs a user, and its standard input, output and error.")
        who = self.spools.who(order.user)
        stdin, stdout, stderr = fds
        for fd in (stdout, stderr):  # the first comes from a clerk: it is his user's, or not to become it
            if _is_pipe(fd):
                os.fchown(fd, who.uid, who.gid)
        return self.units.begin(order, (stdin, stdout, stderr))

    def _tell_of_starts(self) -> bool:
        """Answer those whose units run by now, or never will; True if there were any."""
        before = self._starting
        self._starting = [(line, starting) for line, starting in before if not self._has_told(line, starting)]
        return len(self._starting) < len(before)

    def _has_told(self, line: frames.Frames, starting: Starting) -> bool:
        answer = self._guarded(lambda: self.units.started(starting))
        if answer is None:
            return False
        if line in self._lines.values():  # else he has hung up: it is found by its name
            try:
                self._answer(line.sock, answer)
            except OSError:
                self._hang_up(line)
        return True

    def _signal(self, request: errands.SignalUnit, _: list[int]) -> errands.Answer:
        self.units.signal(_checked(request.name), request.number)
        return errands.Done()

    def _forget(self, request: errands.ForgetUnit, _: list[int]) -> errands.Answer:
        self.units.forget(_checked(request.name))
        return errands.Done()

    # ------------------------------------------------------------------ clerks

    def _hire(self, request: errands.Hire, fds: list[int]) -> errands.Answer:
        if len(fds) != 1:
            raise RefusedError("a clerk needs one line to talk over.")
        who = self.spools.who(request.user)
        if list(self.clerks.values()).count(who.name) >= MOST_CLERKS:
            raise RefusedError(f"{MOST_CLERKS} clerks of {who.name} are out already; try again in a moment.")
        pid = os.fork()
        if pid == 0:
            try:
                line = fds[0]
                settle_in(line)
                become(who)
                Clerk(self.spools.of(who.name)).serve(socket.socket(fileno=line))
            finally:
                os._exit(0)
        self.clerks[pid] = who.name
        return errands.Done()

    def close(self) -> None:
        """Close the desk; clerks go when those they talk to hang up."""
        for line in list(self._lines.values()):
            self._hang_up(line)
        self.door.close()
        self.units.close()


def _is_pipe(fd: int) -> bool:
    """Whether this is a pipe without a name: nothing else is ever given to anybody."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        status, pipe = os.fstat(fd), os.fstat(reader)
    finally:
        os.close(reader)
        os.close(writer)
    return stat.S_ISFIFO(status.st_mode) and status.st_dev == pipe.st_dev


def _checked(name: str) -> str:
    """The name of a unit of an agent; no other is touched."""
    if run_of(name) is None:
        raise RefusedError(f"{name!r} is no unit of an agent.")
    return name
