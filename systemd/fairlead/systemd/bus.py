"""A connection to a systemd manager over D-Bus."""

import os
import time
from collections import deque
from contextlib import suppress
from typing import Any

from jeepney import DBusAddress, DBusErrorResponse, HeaderFields, MatchRule, Message, MessageType, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from msgspec import Struct

from fairlead.base.errors import FairleadError
from fairlead.systemd.unit import NoManagerError

#: systemd answers within milliseconds; a host that is that slow has other troubles.
PATIENCE = 25.0
_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = f"{_NAME}.Manager"
_PROPERTIES = "org.freedesktop.DBus.Properties"
#: More jobs than this do not end between two looks.
_JOBS = 4096
_BUS = "org.freedesktop.DBus.Error."
#: What the bus itself says while systemd cannot be reached over it: one of them has just been started anew.
_AWAY = frozenset({"ServiceUnknown", "NameHasNoOwner", "NoReply", "NoServer", "Disconnected", "Timeout", "TimedOut"})
#: What it says of a service that it would start itself begins so; systemd is none.
_ACTIVATION = "Spawn."


class TooSlowError(NoManagerError):
    """A job takes longer than anybody waits for."""


#: systemd says that a job has ended.
_ENDS = MatchRule(type="signal", interface=_MANAGER, member="JobRemoved", path=_PATH)


class ManagerError(FairleadError):
    """systemd refused a request."""

    def __init__(self, name: str, what: str) -> None:
        #: The error's name on the bus, without what all have in front.
        self.name = name.rpartition(".")[2]
        super().__init__(f"systemd: {what or name}")


class Job(Struct, frozen=True):
    """A job that systemd was asked to do."""

    path: str
    #: Who does it, by his name on the bus: whoever else says that it has ended is not believed.
    by: str
    #: By when it is to have ended, by the clock that does not jump.
    deadline: float


class Manager:
    """The system's manager, or the user's own."""

    def __init__(self, which: str) -> None:
        self._which = which
        self._bus = self._connected(which)
        #: What was said of ends of jobs, and not looked at yet.
        self._said: deque[Message] = deque(maxlen=_JOBS)
        #: The jobs that somebody waits for, and how they have ended.
        self._jobs: dict[Job, str] = {}
        try:
            self._bus.filter(_ENDS, queue=self._said)
            self.call("Subscribe")
        except BaseException:
            self.close()
            raise

    def _connected(self, which: str) -> DBusConnection:
        try:
            return _connect(which)
        except (OSError, KeyError, RuntimeError, ValueError, DBusErrorResponse) as error:
            raise NoManagerError(f"the {which}'s systemd cannot be reached: {error}") from error

    def fileno(self) -> int:
        """Becomes readable when something was said."""
        return int(self._bus.sock.fileno())

    def call(self, member: str, signature: str | None = None, body: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Call a method of the manager."""
        return self._called(member, signature, body)[0]

    def _called(self, member: str, signature: str | None, body: tuple[Any, ...]) -> tuple[tuple[Any, ...], str]:
        """What a method brings, and who has answered."""
        address = DBusAddress(_PATH, bus_name=_NAME, interface=_MANAGER)
        reply = self._reply(new_method_call(address, member, signature, body))
        return reply.body, str(reply.header.fields.get(HeaderFields.sender, ""))

    # ------------------------------------------------------------------ jobs

    def begin_job(self, member: str, signature: str, body: tuple[Any, ...]) -> Job:
        """Call a method that makes a job. Ends are told only while somebody waits: nobody would hear the others."""
        if not self._jobs:
            self._ask(message_bus.AddMatch(_ENDS))
        (path,), by = self._called(member, signature, body)
        job = Job(path, by, time.monotonic() + PATIENCE)
        self._jobs[job] = ""
        return job

    def end_of(self, job: Job, *, wait: bool) -> str:
        """How a job has ended; empty if it has not yet. Waits for that if asked to, as long as patience lasts."""
        while not (result := self._take_note(job)):
            left = job.deadline - time.monotonic()
            if left <= 0:
                self._drop(job)
                raise TooSlowError(f"the {self._which}'s systemd takes too long")
            if not self._listen(left if wait else 0.0):
                return ""
        self._drop(job)
        return result

    def _drop(self, job: Job) -> None:
        """Nobody waits for that one any more."""
        del self._jobs[job]
        if not self._jobs:
            with suppress(NoManagerError):  # whoever asks next finds out
                self._ask(message_bus.RemoveMatch(_ENDS))

    def _take_note(self, wanted: Job) -> str:
        """Go through what was said; returns how that job has ended."""
        while self._said:
            message = self._said.popleft()
            _, path, _, result = message.body
            for job in self._jobs:
                if (job.path, job.by) == (path, message.header.fields.get(HeaderFields.sender)):
                    self._jobs[job] = str(result)
        return self._jobs[wanted]

    def _listen(self, seconds: float) -> bool:
        """Hear one message; False if none has come."""
        try:
            self._bus.recv_messages(timeout=seconds)
        except TimeoutError:
            return False
        except (OSError, RuntimeError) as error:
            raise self._silent(error) from error
        return True

    # ------------------------------------------------------------------ properties

    def properties(self, path: str, kind: str, *names: str) -> list[Any]:
        """Properties of a unit, as one of its kinds has them."""
        address = DBusAddress(path, bus_name=_NAME, interface=_PROPERTIES)
        asked = [(f"{_NAME}.{kind}", name) for name in names]
        return [self._ask(new_method_call(address, "Get", "ss", pair))[0][1] for pair in asked]

    def environment(self) -> list[str]:
        """The names of the variables that the manager hands to every unit."""
        address = DBusAddress(_PATH, bus_name=_NAME, interface=_PROPERTIES)
        ((_, words),) = self._ask(new_method_call(address, "Get", "ss", (_MANAGER, "Environment")))
        return [word.partition("=")[0] for word in words]

    # ------------------------------------------------------------------ the bus

    def _ask(self, message: Message) -> tuple[Any, ...]:
        body: tuple[Any, ...] = self._reply(message).body
        return body

    def _reply(self, message: Message) -> Message:
        try:
            reply = self._bus.send_and_get_reply(message, timeout=PATIENCE)
        except (OSError, RuntimeError) as error:
            raise self._silent(error) from error
        if reply.header.message_type is MessageType.error:
            raise self._error_of(reply)
        return reply

    def _error_of(self, reply: Message) -> FairleadError:
        name = str(reply.header.fields.get(HeaderFields.error_name, ""))
        what = str(reply.body[0]) if reply.body else ""
        word = name.removeprefix(_BUS)
        is_away = name.startswith(_BUS) and (word in _AWAY or word.startswith(_ACTIVATION))
        return self._silent(what or name) if is_away else ManagerError(name, what)

    def _silent(self, why: object) -> NoManagerError:
        return NoManagerError(f"the {self._which}'s systemd does not answer: {why}")

    def close(self) -> None:
        """Hang up."""
        self._bus.close()


def _connect(which: str) -> DBusConnection:
    if which == "system":
        return open_dbus_connection("SYSTEM", enable_fds=True)
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return open_dbus_connection(address or f"unix:path={runtime}/bus", enable_fds=True)
