"""Transient units, by asking systemd itself: how an order becomes a unit, and what is read back of one."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from msgspec import Struct, structs

from fairlead.base.files import opened, remove, write_all
from fairlead.systemd.bus import Job, Manager, ManagerError, TooSlowError
from fairlead.systemd.memory import Watches
from fairlead.systemd.unit import (
    EXITED,
    FENCE,
    OUT_OF_MEMORY,
    PREFIX,
    SLICE,
    NoManagerError,
    NotStartedError,
    Order,
    Started,
    State,
    UnitExistsError,
)

_MICROSECONDS = 1_000_000
#: What a stop of the whole unit leaves between asking and killing; its supervisor has asked long before.
_STOP_WITHIN = 2.0
#: A fence is a unit that does nothing, and is still there.
_NOTHING = ("/bin/true",)
#: systemd's own exit statuses of a process that did not come as far as its program.
_BEFORE_THE_PROGRAM = range(200, 245)
_NOT_LOADED = ("NoSuchUnit", "NoSuchProcess")
#: What systemd adds to every environment on its own, and agents have no use for.
_ADDED = (
    "MANAGERPID",
    "SYSTEMD_EXEC_PID",
    "NOTIFY_SOCKET",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
)

Property = tuple[str, tuple[str, Any]]
T = TypeVar("T")


class Starting(Struct, frozen=True):
    """A unit that systemd was asked to start."""

    order: Order
    manager: Manager
    job: Job


class TransientUnits:
    """Units of the system's manager or of the user's; a lost connection is made anew with the next request."""

    def __init__(self, which: str, folder: str) -> None:
        self._which = which
        #: Where environments lie until systemd has read them: nobody else may enter it.
        self._folder = folder
        self._manager: Manager | None = None
        self._memory = Watches()

    # ------------------------------------------------------------------ starting

    def start(self, order: Order, stdio: tuple[int, int, int]) -> Started:
        """Start a unit with these as standard input, output and error; returns once its program runs."""
        starting = self.begin(order, stdio)
        while not (started := self.started(starting, wait=True)):
            continue
        return started

    def begin(self, order: Order, stdio: tuple[int, int, int]) -> Starting:
        """The same without waiting: its user's own files may keep a program from starting for as long as he likes."""
        properties = [*_properties(order), *_streams(stdio), *self._variables(order)]
        with self._tidied(order.name):
            self._put_environment(order)
            return Starting(order, *self._begin_job(*_new_unit(order.name, properties)))

    def started(self, starting: Starting, *, wait: bool = False) -> Started | None:
        """The unit that was begun, once its program runs; none as long as it does not. Raises what `start` raises."""
        order = starting.order
        with self._tidied(order.name):
            result = self._end_of(starting.manager, starting.job, wait=wait)
        if not result:
            return None
        _tidy(self._environment(order.name))
        state = self.state(order.name)
        self._see_that_it_runs(order.name, result, state)
        if "memory_max" in order.sandbox:
            self._memory.begin(order.name, state.cgroup)
        return Started(pid=state.pid, cgroup=state.cgroup)

    def _see_that_it_runs(self, name: str, result: str, state: State) -> None:
        # One that a signal ended at once is told as a failure, too: but it had started.
        if result != "done" and (not state.has_ended or (state.code == EXITED and state.status in _BEFORE_THE_PROGRAM)):
            self.forget(name)
            raise NotStartedError(state.status)

    def fileno(self) -> int | None:
        """Becomes readable when a start may have come to its end; none without a connection."""
        return self._manager.fileno() if self._manager else None

    def _put_environment(self, order: Order) -> None:
        """The environment as a file: properties of units can be read by everybody on the host."""
        with opened(self._environment(order.name), os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW) as fd:
            write_all(fd, "".join(f"{name}={_quoted(value)}\n" for name, value in order.env.items()).encode())

    def _environment(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.env")

    @contextmanager
    def _tidied(self, name: str) -> Iterator[None]:
        """Remove the environment of a start that has failed; not where that is unknown, since it may be read yet."""
        try:
            yield
        except NoManagerError:
            raise
        except BaseException:
            _tidy(self._environment(name))
            raise

    def _variables(self, order: Order) -> list[Property]:
        """The order's own variables, and none of those that the manager would add."""
        inherited = self._retry(lambda manager: manager.environment())
        return [
            ("EnvironmentFiles", ("a(sb)", [(self._environment(order.name), False)])),
            ("UnsetEnvironment", ("as", sorted({*inherited, *_ADDED} - set(order.env)))),
        ]

    # ------------------------------------------------------------------ looking and ending

    def state(self, name: str) -> State:
        """What is known of a unit."""
        state = self._retry(lambda manager: _state(manager, name))
        is_success = state.code == EXITED and state.status == 0
        if state.has_ended and not is_success and self._memory.has_run_out(name):
            return structs.replace(state, result=OUT_OF_MEMORY)
        return state

    def signal(self, name: str, number: int) -> None:
        """Send a signal to every process of a unit; nothing if there is none."""
        self._unless_gone("KillUnit", "ssi", (name, "all", number))

    def forget(self, name: str) -> None:
        """End what is left of a unit, and let systemd forget it."""
        self._memory.end(name)
        _tidy(self._environment(name))
        self.signal(name, signal.SIGKILL)
        try:
            self._run_job("StopUnit", "ss", (name, "replace"))
        except ManagerError as error:
            if error.name not in _NOT_LOADED:
                raise
        self._unless_gone("ResetFailedUnit", "s", (name,))

    def fence(self, name: str) -> bool:
        """See to it that no unit of that name is started from now on; False if there is one."""
        properties = _described(f"{name} is not to be started") + _program(_NOTHING)
        properties += [("Type", ("s", FENCE)), ("RemainAfterExit", ("b", True))]
        try:
            self._run_job(*_new_unit(name, properties))
        except UnitExistsError:
            return False
        return True

    def names(self) -> list[str]:
        """All units of agents, fences among them."""
        asked: tuple[list[str], list[str]] = ([], [f"{PREFIX}*"])
        (rows,) = self._retry(lambda manager: manager.call("ListUnitsByPatterns", "asas", asked))
        return [row[0] for row in rows if row[2] != "not-found"]

    def close(self) -> None:
        """Let go; units go on."""
        self._memory.close()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._manager is not None:
            self._manager.close()
        self._manager = None

    # ------------------------------------------------------------------ asking

    def _unless_gone(self, member: str, signature: str, body: tuple[Any, ...]) -> None:
        try:
            self._retry(lambda manager: manager.call(member, signature, body))
        except ManagerError as error:
            if error.name not in _NOT_LOADED:
                raise

    def _run_job(self, member: str, signature: str, body: tuple[Any, ...]) -> None:
        """Have a job done."""
        manager, job = self._begin_job(member, signature, body)
        while not self._end_of(manager, job, wait=True):
            continue

    def _begin_job(self, member: str, signature: str, body: tuple[Any, ...]) -> tuple[Manager, Job]:
        """Have a job begun. It is not asked for twice: the first request may have been heard."""
        try:
            manager = self._connected()
            return manager, manager.begin_job(member, signature, body)
        except NoManagerError:
            self._hang_up()
            raise
        except ManagerError as error:
            if error.name == "UnitExists":
                raise UnitExistsError(str(error)) from error
            raise

    def _end_of(self, manager: Manager, job: Job, *, wait: bool) -> str:
        if manager is not self._manager:
            raise NoManagerError("the connection to systemd was lost")
        try:
            return manager.end_of(job, wait=wait)
        except TooSlowError:
            raise  # the others' jobs go on
        except NoManagerError:
            self._hang_up()
            raise

    def _retry(self, ask: Callable[[Manager], T]) -> T:
        """Ask what may be asked twice: a connection may have been lost while nobody used it."""
        try:
            return ask(self._connected())
        except NoManagerError:
            self._hang_up()
            return ask(self._connected())

    def _connected(self) -> Manager:
        self._manager = self._manager or Manager(self._which)
        return self._manager


def _state(manager: Manager, name: str) -> State:
    try:
        (path,) = manager.call("GetUnit", "s", (name,))
        active, sub = manager.properties(path, "Unit", "ActiveState", "SubState")
        kind, result, code, status, pid, cgroup = manager.properties(
            path, "Service", "Type", "Result", "ExecMainCode", "ExecMainStatus", "ExecMainPID", "ControlGroup"
        )
    except ManagerError as error:
        if error.name in (*_NOT_LOADED, "UnknownObject"):
            return State()
        raise
    is_fence = kind == FENCE
    return State(
        active=active, sub=sub, result=result, code=code, status=status, pid=pid, cgroup=cgroup, is_fence=is_fence
    )


# ---------------------------------------------------------------------- what a unit is made of


def _new_unit(name: str, properties: list[Property]) -> tuple[str, str, tuple[Any, ...]]:
    """How a unit is asked for of which there must be none."""
    return "StartTransientUnit", "ssa(sv)a(sa(sv))", (name, "fail", properties, [])


def _properties(order: Order) -> list[Property]:
    properties = _described(order.description) + _program(order.argv)
    properties += [
        ("Type", ("s", "exec")),
        # Its end stays readable until it is forgotten, whoever is there to read it.
        ("RemainAfterExit", ("b", True)),
        ("WorkingDirectory", ("s", order.cwd)),
        ("TimeoutStopUSec", ("t", int(_STOP_WITHIN * _MICROSECONDS))),
        ("KillMode", ("s", "control-group")),
        ("OOMPolicy", ("s", "kill")),
        ("IgnoreSIGPIPE", ("b", False)),
    ]
    if order.user is not None:
        properties.append(("User", ("s", order.user)))
    if order.most:
        properties.append(("RuntimeMaxUSec", ("t", int(order.most * _MICROSECONDS))))
    return properties + [_SANDBOX[key](value) for key, value in order.sandbox.items()]


def _tidy(environment: str) -> None:
    """What was begun goes on, whether or not the file can be removed: nobody else may enter its folder."""
    with suppress(OSError):
        remove(environment)


def _described(text: str) -> list[Property]:
    return [("Description", ("s", text)), ("Slice", ("s", SLICE))]


def _program(argv: tuple[str, ...]) -> list[Property]:
    # Without that flag systemd would replace $NAME in the arguments.
    return [("ExecStartEx", ("a(sasas)", [(argv[0], list(argv), ["no-env-expand"])]))]


def _streams(stdio: tuple[int, int, int]) -> list[Property]:
    names = ("StandardInputFileDescriptor", "StandardOutputFileDescriptor", "StandardErrorFileDescriptor")
    return [(name, ("h", fd)) for name, fd in zip(names, stdio, strict=True)]


def _quoted(value: str) -> str:
    """A value as systemd reads it from a file: in double quotes, with what has a meaning there escaped."""
    for special in ("\\", '"', "`", "$"):
        value = value.replace(special, f"\\{special}")
    return f'"{value}"'


def _plain(name: str, kind: str) -> Callable[[Any], Property]:
    return lambda value: (name, (kind, value))


#: How each key of a `sandbox` section is said to systemd.
_SANDBOX: dict[str, Callable[[Any], Property]] = {
    "memory_max": _plain("MemoryMax", "t"),
    "memory_high": _plain("MemoryHigh", "t"),
    "tasks_max": _plain("TasksMax", "t"),
    "io_weight": _plain("IOWeight", "t"),
    "cpu_weight": _plain("CPUWeight", "t"),
    "cpu_quota": lambda share: ("CPUQuotaPerSecUSec", ("t", int(share * _MICROSECONDS))),
    "protect_system": _plain("ProtectSystem", "s"),
    "protect_home": _plain("ProtectHome", "s"),
    "read_write_paths": _plain("ReadWritePaths", "as"),
    "private_tmp": _plain("PrivateTmp", "b"),
    "no_new_privileges": _plain("NoNewPrivileges", "b"),
    "network": lambda wanted: ("PrivateNetwork", ("b", not wanted)),
    "umask": _plain("UMask", "u"),
}
