"""An agent in a transient unit of systemd: its supervisor looks after it from outside.

The unit's name says which attempt it is, so that whoever comes later finds it again. Its end stays readable until
the unit is forgotten, and its control group says what is alive of it.
"""

import errno
import os
import select
import time
from contextlib import suppress

from fairlead.base.errors import FairleadError
from fairlead.base.files import opened
from fairlead.base.identity import ProcessId
from fairlead.conductor import tree
from fairlead.conductor.agent import OUT_OF_MEMORY, End, Stdio
from fairlead.conductor.orders import InUnit, Launch
from fairlead.conductor.porter import Porter
from fairlead.systemd.unit import (
    EXITED,
    NoManagerError,
    NotStartedError,
    Order,
    Started,
    State,
    UnitExistsError,
    Units,
    processes_in,
)

_STOPPED = "its unit was stopped by somebody"
#: Between two tries while systemd cannot be asked.
_PAUSE = 0.2
#: systemd ends what its supervisor should have ended so much earlier.
_MARGIN = 60.0
#: The kernel's limit for one argument, its final NUL included.
_LONGEST = 128 * 1024


class UnitAgent:
    """One agent in its unit."""

    def __init__(self, units: Units, where: InUnit, poll: "select.poll") -> None:
        self.units = units
        self.where = where
        self.pid: int | None = None
        self.end: End | None = None
        self.needs_looks = False
        self._poll = poll
        self._pidfd: int | None = None
        self._cgroup = ""

    # ------------------------------------------------------------------ starting

    def start(self, launch: Launch, stdio: Stdio) -> None:
        """Start its unit; what systemd would only number is looked at before, and said in words."""
        _check_words(launch)
        if self.where.user is None:
            _check_places(launch)
        try:
            started = self.units.start(self._order(launch), stdio)
        except NotStartedError as error:
            raise OSError(errno.ENOEXEC, _why(error, launch), launch.argv[0]) from error
        except UnitExistsError as error:
            raise OSError(errno.EEXIST, "there is a unit of its name already", self.where.name) from error
        except NoManagerError as error:
            started = self._make_sure(OSError(errno.EAGAIN, str(error)))
        except FairleadError as error:  # refused; whether before or after it was started, nobody says
            started = self._make_sure(OSError(errno.EPERM, str(error), launch.argv[0]))
        self.pid = started.pid or None
        self._cgroup = started.cgroup
        self._watch()

    def _order(self, launch: Launch) -> Order:
        where = self.where
        return Order(
            name=where.name,
            description=where.description,
            argv=launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            user=where.user,
            most=launch.timeout + launch.grace + _MARGIN if launch.timeout else 0.0,
            sandbox=where.sandbox,
        )

    def _make_sure(self, trouble: OSError) -> Started:
        """Nobody knows whether the request was heard: find the unit, or see to it that there will be none."""
        while True:
            with suppress(FairleadError):
                is_free = self.units.fence(self.where.name)
                state = self.units.state(self.where.name)
                if is_free or state.is_fence:  # the answer to an earlier try may have been lost
                    self.units.forget(self.where.name)
                    raise trouble
                if state.active != "inactive":  # else it waits for its turn: its control group is not there yet
                    return Started(pid=state.pid, cgroup=state.cgroup)
            time.sleep(_PAUSE)

    def _watch(self) -> None:
        """Be woken when its first process ends; that of a run so short is looked for."""
        self.needs_looks = True
        if self.pid is None:
            return
        with suppress(OSError):  # it has gone, or there is no descriptor left: it was started all the same
            pidfd = os.pidfd_open(self.pid)
            # The descriptor is bound to one process by now: ours, if it is where ours has to be.
            if self.pid in processes_in(self._cgroup):
                self._pidfd = pidfd
                self._poll.register(pidfd, select.POLLIN)
                self.needs_looks = False
            else:
                os.close(pidfd)

    # ------------------------------------------------------------------ looking after it

    def look(self) -> bool:
        """Take note of its end; True once its control group is empty."""
        try:
            return self._look()
        except (FairleadError, OSError):  # as long as nobody can tell, it is there
            self.needs_looks = True
            return False

    def _look(self) -> bool:
        if self.end is None and self._may_have_ended():
            self.needs_looks = True  # systemd may hear of it later than we do
            self._note(self.units.state(self.where.name))
        return self.end is not None and not processes_in(self._cgroup)

    def _may_have_ended(self) -> bool:
        if self._pidfd is None:
            return True
        if not select.select([self._pidfd], [], [], 0)[0]:
            return False
        self._close_pidfd()
        return True

    def _note(self, state: State) -> None:
        if state.has_ended:
            self.end = _end_of(state)
        elif state.active in ("inactive", "failed"):
            self.end = End(cause=_STOPPED if state.result == "success" else f"its unit failed: {state.result}")

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            self._poll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def processes(self) -> list[ProcessId]:
        """Everything in its control group, as far as it can be seen now."""
        with suppress(OSError):
            return tree.identify(processes_in(self._cgroup))
        return []

    def send(self, number: int) -> None:
        """Send a signal to everything in its unit; where systemd cannot be asked now, the next look tries again."""
        self.needs_looks = True
        with suppress(FairleadError):
            self.units.signal(self.where.name, number)

    def leave(self) -> None:
        """Let systemd forget its unit. What cannot be told now is told by whoever clears up later."""
        self._close_pidfd()
        with suppress(FairleadError):
            self.units.forget(self.where.name)
        self.units.close()


def units_by(by: str, folder: str) -> Units:
    """Who starts and ends units: systemd itself, or a porter by the path of his socket."""
    if by.startswith("/"):
        return Porter(by)
    from fairlead.systemd.transient import TransientUnits  # noqa: PLC0415 - who asks a porter needs no D-Bus

    return TransientUnits(by, folder)


def _end_of(state: State) -> End:
    cause = ""
    if state.is_out_of_memory:
        cause = OUT_OF_MEMORY
    elif state.result == "timeout":
        cause = "it ran beyond its time limit, and systemd ended it"
    return End(code=state.status, cause=cause) if state.code == EXITED else End(signal=state.status, cause=cause)


def _check_places(launch: Launch) -> None:
    """What the kernel would say, whom systemd asks instead of us; of another user's places his clerk says it."""
    with opened(launch.cwd, os.O_RDONLY | os.O_DIRECTORY):
        os.stat(launch.argv[0])
    if not os.access(launch.argv[0], os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), launch.argv[0])


def _check_words(launch: Launch) -> None:
    """The same of what is handed to the program: the bus would hang up on whoever sends a NUL."""
    if any(len(os.fsencode(word)) >= _LONGEST for word in launch.argv):
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG), launch.argv[0])
    if any("\0" in word for word in (*launch.argv, *launch.env, *launch.env.values())):
        raise ValueError("embedded null byte")


def _why(error: NotStartedError, launch: Launch) -> str:
    if error.is_without_directory:
        return f"its directory {launch.cwd} cannot be entered"
    return os.strerror(errno.ENOEXEC) if error.is_without_program else str(error)
