"""A connection to a systemd manager over D-Bus."""

import os
from collections import deque
from typing import Any

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, MessageType, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

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
#: The result of a job that this connection knows nothing of.
LOST = "lost"


class ManagerError(FairleadError):
    """systemd refused a request."""

    def __init__(self, name: str, what: str) -> None:
        #: The error's name on the bus, without what all have in front.
        self.name = name.rpartition(".")[2]
        super().__init__(f"systemd: {what or name}")


class Manager:
    """The system's manager, or the user's own."""

    def __init__(self, which: str) -> None:
        self._which = which
        try:
            self._bus = _connect(which)
        except (OSError, KeyError, RuntimeError) as error:
            raise NoManagerError(f"the {which}'s systemd cannot be reached: {error}") from error
        self._jobs: deque[Message] = deque(maxlen=_JOBS)
        #: Jobs whose end somebody waits for, and how they have ended.
        self._results: dict[str, str] = {}
        rule = MatchRule(type="signal", interface=_MANAGER, member="JobRemoved", path=_PATH)
        self._bus.filter(rule, queue=self._jobs)
        self._ask(message_bus.AddMatch(rule))
        self.call("Subscribe")

    def call(self, member: str, signature: str | None = None, body: tuple[Any, ...] = ()) -> tuple[Any, ...]:
        """Call a method of the manager."""
        address = DBusAddress(_PATH, bus_name=_NAME, interface=_MANAGER)
        return self._ask(new_method_call(address, member, signature, body))

    # ------------------------------------------------------------------ jobs

    def begin_job(self, member: str, signature: str, body: tuple[Any, ...]) -> str:
        """Call a method that makes a job; returns the job."""
        (job,) = self.call(member, signature, body)
        self._results[job] = ""
        return str(job)

    def wait(self, job: str) -> str:
        """Wait for the end of a job; returns how it ended."""
        while not (result := self.result_of(job)):
            if not self._hear_one(PATIENCE):
                raise NoManagerError(f"the {self._which}'s systemd does not get on with a job")
        return result

    def result_of(self, job: str) -> str:
        """How a job has ended, which is told once; nothing while it has not."""
        while self._jobs:
            _, path, _, result = self._jobs.popleft().body
            if path in self._results:
                self._results[path] = str(result)
        result = self._results.get(job, LOST)
        if result:
            self._results.pop(job, None)
        return result

    def hear(self) -> None:
        """Take what has come without waiting for more: ends of jobs are among it."""
        while self._hear_one(0):
            pass

    def fileno(self) -> int:
        """Becomes readable when there is something to hear."""
        return int(self._bus.sock.fileno())

    def _hear_one(self, seconds: float) -> bool:
        try:
            self._bus.recv_messages(timeout=seconds)
        except TimeoutError:
            return False
        except OSError as error:
            raise NoManagerError(f"the {self._which}'s systemd does not answer: {error}") from error
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

    def _ask(self, message: Message) -> tuple[Any, ...]:
        try:
            reply = self._bus.send_and_get_reply(message, timeout=PATIENCE)
        except (OSError, TimeoutError) as error:
            raise NoManagerError(f"the {self._which}'s systemd does not answer: {error}") from error
        if reply.header.message_type is MessageType.error:
            name = reply.header.fields.get(HeaderFields.error_name, "")
            raise ManagerError(name, str(reply.body[0]) if reply.body else "")
        body: tuple[Any, ...] = reply.body
        return body

    def close(self) -> None:
        """Hang up."""
        self._bus.close()


def _connect(which: str) -> DBusConnection:
    if which == "system":
        return open_dbus_connection("SYSTEM", enable_fds=True)
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return open_dbus_connection(address or f"unix:path={runtime}/bus", enable_fds=True)
