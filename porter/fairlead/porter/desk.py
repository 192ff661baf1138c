"""The porter's desk: requests of our own services, one at a time, each with an answer."""

import os
import select
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from fairlead.base import frames
from fairlead.base.errors import FairleadError, RefusedError
from fairlead.base.logs import Log
from fairlead.conductor import errands
from fairlead.porter.becoming import become, settle_in
from fairlead.porter.clerk import Clerk
from fairlead.porter.spools import Spools
from fairlead.systemd.transient import TransientUnits
from fairlead.systemd.unit import NoManagerError, NotStartedError, UnitExistsError, run_of

#: Clerks of one user at the same time: he may stop them, and so keep them from going.
MOST_CLERKS = 8
_CREDENTIALS = struct.Struct("3i")
_STDIO = 3

T = TypeVar("T")


class Later(Struct, frozen=True):
    """An answer that has to wait for systemd: how long that takes is in the hands of the unit's user."""

    job: str
    answer: Callable[[str], errands.Answer]


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
        #: Whoever waits for systemd, and for what.
        self._later: list[tuple[frames.Frames, Later]] = []
        self._poll = select.poll()
        self._poll.register(door, select.POLLIN)
        self._requests: dict[type, Callable[[Any, list[int]], errands.Answer | Later]] = {
            errands.Hire: self._hire,
            errands.StartUnit: self._start,
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
        self._answer_late()

    def _wait(self, seconds: float) -> set[int]:
        """Which descriptors have something to read. The one to systemd may be another one each time."""
        bus = self.units.fileno()
        if bus >= 0:
            self._poll.register(bus, select.POLLIN)
        try:
            return {fd for fd, _ in self._poll.poll(seconds * 1000)}
        finally:
            if bus >= 0:
                self._poll.unregister(bus)

    def _answer_late(self) -> None:
        """Answer whoever waited for what systemd has done by now; while that is looked up, more may be done."""
        self.units.hear()
        while done := [(one, result) for one in self._later if (result := self.units.result_of(one[1].job))]:
            for one, _ in done:
                self._later.remove(one)
            for (line, later), result in done:
                self._send_if_there(line, self._guarded(partial(later.answer, result)))

    def reap(self) -> None:
        """Clerks that have gone."""
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.clerks.pop(pid, None)

    def _let_in(self) -> None:
        """The kernel says who has come; strangers are shown out."""
        line, _ = self.door.accept()
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
                    self._answer(line, data, fds)
                finally:
                    for fd in fds:
                        os.close(fd)
        except BlockingIOError:
            return
        except (OSError, frames.BadFrameError):
            self._hang_up(line)

    def _hang_up(self, line: frames.Frames) -> None:
        self._poll.unregister(line.sock)
        del self._lines[line.sock.fileno()]
        line.close()

    def _answer(self, line: frames.Frames, data: bytes, fds: list[int]) -> None:
        answer = self._guarded(partial(self._do, data, fds))
        if isinstance(answer, Later):
            self._later.append((line, answer))
        else:
            self._send(line.sock, answer)

    def _do(self, data: bytes, fds: list[int]) -> errands.Answer | Later:
        request = errands.decode_request(data)
        return self._requests[type(request)](request, fds)

    def _send(self, sock: socket.socket, answer: errands.Answer) -> None:
        sock.setblocking(True)
        sock.settimeout(1.0)  # ours listen; one that was stopped must not keep the others waiting
        try:
            frames.send(sock, errands.encode(answer))
        finally:
            sock.setblocking(False)

    def _send_if_there(self, line: frames.Frames, answer: errands.Answer) -> None:
        """Whoever waited may have hung up."""
        if line not in self._lines.values():
            return
        try:
            self._send(line.sock, answer)
        except OSError:
            self._hang_up(line)

    def _guarded(self, ask: Callable[[], T]) -> T | errands.Failed:
        """The answer, or why there is none."""
        try:
            return ask()
        except UnitExistsError as error:
            return errands.Failed("exists", str(error))
        except NotStartedError as error:
            return errands.Failed("not_started", str(error), error.status)
        except NoManagerError as error:
            return errands.Failed("no_manager", str(error))
        except (FairleadError, OSError, ValueError, KeyError) as error:
            self.log.warning("refused", what="porter", error=str(error))
            return errands.Failed("refused", str(error))

    # ------------------------------------------------------------------ units

    def _start(self, request: errands.StartUnit, fds: list[int]) -> Later:
        """A unit of a user who may use the queue, with pipes that are his, so that he may open them anew."""
        order = request.order
        _checked(order.name)
        if order.user is None or len(fds) != _STDIO:
            raise RefusedError("a unit needs a user, and its standard input, output and error.")
        who = self.spools.who(order.user)
        for fd in fds:
            if _is_pipe(fd):
                os.fchown(fd, who.uid, who.gid)
        stdin, stdout, stderr = fds
        job = self.units.begin_start(order, (stdin, stdout, stderr))
        return Later(job, lambda result: self.units.finish_start(order, result))

    def _signal(self, request: errands.SignalUnit, _: list[int]) -> errands.Answer:
        self.units.signal(_checked(request.name), request.number)
        return errands.Done()

    def _forget(self, request: errands.ForgetUnit, _: list[int]) -> errands.Answer | Later:
        name = _checked(request.name)
        job = self.units.begin_forget(name)
        return Later(job, lambda _: self._forgotten(name)) if job else self._forgotten(name)

    def _forgotten(self, name: str) -> errands.Answer:
        self.units.finish_forget(name)
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
