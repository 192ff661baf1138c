"""Asking the porter: for units, and for clerks."""

import os
import socket
from collections.abc import Sequence
from typing import TypeVar

from fairlead.base import frames
from fairlead.base.errors import RefusedError, UnavailableError
from fairlead.conductor import errands
from fairlead.systemd.unit import NoManagerError, NotStartedError, Order, Started, State, UnitExistsError

#: He asks systemd, which may take its time.
PATIENCE = 30.0
#: An errand takes a clerk moments; one that was stopped by its user is not waited for much longer.
CLERK_PATIENCE = 10.0

T = TypeVar("T")


class PorterError(RefusedError):
    """The porter refused."""


class ClerkError(UnavailableError):
    """A clerk does not answer, or has gone."""


class Porter:
    """A line to the porter; one that was cut is laid anew with the next request."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._line: socket.socket | None = None

    # ------------------------------------------------------------------ units

    def start(self, order: Order, stdio: tuple[int, int, int]) -> Started:
        """Start a unit with these as standard input, output and error; returns once its program runs."""
        return self._expect(Started, errands.StartUnit(order), stdio)

    def state(self, name: str) -> State:
        """What is known of a unit."""
        return self._expect(State, errands.AskState(name))

    def signal(self, name: str, number: int) -> None:
        """Send a signal to every process of a unit; nothing if there is none."""
        self._expect(errands.Done, errands.SignalUnit(name, number))

    def forget(self, name: str) -> None:
        """End what is left of a unit, and let systemd forget it."""
        self._expect(errands.Done, errands.ForgetUnit(name))

    def fence(self, name: str) -> bool:
        """See to it that no unit of that name is started from now on; False if there is one."""
        return self._expect(errands.Done, errands.FenceUnit(name)).was_free

    def names(self) -> list[str]:
        """All units of agents, fences among them."""
        return self._expect(errands.Names, errands.ListUnits()).names

    # ------------------------------------------------------------------ spools and clerks

    def make_spools(self) -> list[str]:
        """See to it that everybody who may use the queue has a spool; the names of all who have one."""
        return self._expect(errands.Names, errands.MakeSpools()).names

    def hire(self, user: str) -> socket.socket:
        """A line to a clerk who has become this user; he goes when it is closed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                self._expect(errands.Done, errands.Hire(user), (theirs.fileno(),))
        except BaseException:
            ours.close()
            raise
        ours.settimeout(CLERK_PATIENCE)
        return ours

    # ------------------------------------------------------------------ the line

    def _expect(self, kind: type[T], request: errands.Request, fds: Sequence[int] = ()) -> T:
        answer = self._ask(request, fds)
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, errands.Failed):
            raise _error_of(answer)
        raise NoManagerError(f"the porter answered {type(answer).__name__}")

    def _ask(self, request: errands.Request, fds: Sequence[int]) -> errands.Answer:
        """Ask once: whoever is not answered has to find out whether he was heard."""
        message = errands.encode(request)
        try:
            line = self._line or self._connect()
            frames.send(line, message, fds)
            data, _ = frames.receive(line, errands.LONGEST)
            answer: errands.Answer = errands.decode_answer(data)
        except (OSError, frames.BadFrameError, ValueError) as error:
            self.close()
            raise NoManagerError(f"the porter at {self._path} does not answer: {error}") from error
        return answer

    def _connect(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        line.settimeout(self._patience)
        try:
            line.connect(self._path)
        except OSError:
            line.close()
            raise
        self._line = line
        return line

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            self._line.close()
        self._line = None


def run_errand(line: socket.socket, errand: errands.Errand) -> tuple[errands.Reply, list[int]]:
    """Send a clerk on an errand and wait for what he brings back; raises ClerkError if he does not come back."""
    message = errands.encode(errand)
    try:
        frames.send(line, message)
        data, fds = frames.receive(line, errands.LONGEST)
    except (OSError, frames.BadFrameError) as error:
        raise ClerkError(f"the clerk does not answer: {error or 'it takes too long'}") from error
    try:
        reply = errands.decode_reply(data)
    except ValueError as error:
        frames.close_all(fds)
        raise ClerkError(f"the clerk answers what nobody understands: {error}") from error
    if isinstance(reply, errands.Ready):
        return reply, fds
    frames.close_all(fds)
    return reply, []


def refusal(reply: errands.Reply) -> OSError | ValueError:
    """What a clerk could not do, as the error that he met."""
    if not isinstance(reply, errands.Refused):
        return ValueError(f"a clerk brought {type(reply).__name__}")
    if reply.number:
        return OSError(reply.number, os.strerror(reply.number), reply.path)
    return ValueError(reply.error)


def _error_of(failed: errands.Failed) -> Exception:
    match failed.kind:
        case "exists":
            return UnitExistsError(failed.error)
        case "not_started":
            return NotStartedError(failed.status)
        case "no_manager":
            return NoManagerError(failed.error)
    return PorterError(failed.error)
