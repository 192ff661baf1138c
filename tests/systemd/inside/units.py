"""Transient units, asked for from systemd itself: run on a booted host by test_units.py, as root."""

import errno
import fcntl
import os
import pwd
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conductor.conftest import place
from tests.conductor.runs import Place, agent, ended, running, shell, state
from tests.support.patience import PATIENCE, eventually, stays

from fairlead.base.errors import is_machine_trouble
from fairlead.conductor import in_unit
from fairlead.conductor.agent import End
from fairlead.conductor.in_unit import UnitAgent
from fairlead.conductor.orders import InUnit
from fairlead.conductor.porter import PorterError
from fairlead.conductor.remains import Remains
from fairlead.systemd import bus
from fairlead.systemd.bus import TooSlowError
from fairlead.systemd.transient import TransientUnits
from fairlead.systemd.unit import (
    NoManagerError,
    NotStartedError,
    Order,
    Started,
    State,
    UnitExistsError,
    processes_in,
    unit_of,
)

__all__ = ["place"]

#: A supervisor that is killed at a place.
DOOMED = """if True:
    import sys
    from tests.support.crashing import _arm
    from fairlead.conductor import supervisor

    place, when = sys.argv.pop(1), sys.argv.pop(1)
    _arm(place, when, 1)
    supervisor.main()
"""


class Desk:
    """Units, a name for one, and what goes in and out of it."""

    def __init__(self, path: Path, units: TransientUnits | None = None) -> None:
        self.path = path
        self.units = units or TransientUnits("system", str(path))
        self.name = unit_of(f"{path.name[-40:].replace('_', '-').strip('-').lower()}", 1)
        self.null = os.open(os.devnull, os.O_RDWR)
        self.reader, self.writer = os.pipe()
        self.stdio = (self.null, self.writer, self.writer)

    def order(self, *argv: str, **changes: Any) -> Order:  # noqa: ANN401 - fields of Order
        """An order for that unit."""
        asked = {"name": self.name, "description": "a test", "argv": argv, "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}}
        return Order(**asked | changes)

    def start(self, *argv: str, **changes: Any) -> Started:  # noqa: ANN401 - fields of Order
        """Start it."""
        return self.units.start(self.order(*argv, **changes), self.stdio)

    def output(self) -> bytes:
        """All that it writes, to its end; systemd keeps the other end of the pipe for longer."""
        os.set_blocking(self.reader, False)
        found = bytearray()

        def look() -> bool:
            has_ended = self.state().has_ended
            with suppress(BlockingIOError):
                while True:
                    found.extend(os.read(self.reader, 1 << 16))
            return has_ended

        eventually(look, "it does not end")
        return bytes(found)

    def state(self) -> State:
        """What is known of it."""
        return self.units.state(self.name)

    def ended(self) -> State:
        """Wait for the end of its first process."""

        def look() -> State | None:
            state = self.state()
            return state if state.has_ended else None

        return eventually(look, "it does not end")

    def environments(self) -> list[str]:
        """The files with environments that lie about."""
        return [path.name for path in self.path.glob("*.env")]

    def close(self) -> None:
        """Nothing of it is left."""
        with suppress(NoManagerError):
            self.units.forget(self.name)
        self.units.close()
        for fd in (self.null, self.reader, self.writer):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk with a name of its own."""
    with closing(Desk(tmp_path)) as desk:
        yield desk


# --- Starting ---


def test_a_unit_runs_as_it_was_ordered(desk: Desk) -> None:
    """Its program, with its arguments as they are, where it is to stand, in its own control group."""
    words = ("$HOME", "%n", "a b", "", "\\x41", '"', "'", ";", "ü\n", "${PATH}", "%%", "$$", "-", "{}", "*")
    script = 'pwd; tail -n1 /proc/self/cgroup; printf "%s\\0" "$@"'
    desk.start("/bin/sh", "-c", script, "sh", *words, cwd="/usr")
    cwd, cgroup, said = desk.output().split(b"\n", 2)
    assert cwd == b"/usr"
    assert cgroup.decode().endswith(f"/fairlead.slice/{desk.name}")
    assert said == b"".join(word.encode() + b"\0" for word in words)
    assert (desk.ended().code, desk.ended().status) == (1, 0)


def test_an_environment_reaches_a_program_byte_for_byte(desk: Desk) -> None:
    """Whatever characters are in it, and nothing else; its file is gone, and the unit does not tell it."""
    env = {f"B{code}": f"a{chr(code)}b{chr(code)}" for code in range(1, 128)}
    env |= {"U": "ü€😀\u2028\ufeff\x85", "E": "", "Q": '\'"`$\\`\\"', "L": "x" * 100_000, "S": "secret", "END": "a\\"}
    env |= {"N": "a\nFORGED=1\n", "C": "#x", "D": ";x", "W": "  x  ", "P": "%n$HOME${HOME}$$"}
    desk.start("/usr/bin/env", "-0", env=env)
    found = dict(one.split("=", 1) for one in desk.output().decode().split("\0") if one)
    assert {name: found.get(name) for name in env} == env
    assert set(found) - set(env) <= {"PATH", "LANG", "PWD", "USER", "LOGNAME", "HOME", "SHELL"}
    assert desk.environments() == []
    shown = subprocess.run(["systemctl", "show", desk.name], capture_output=True, text=True, check=True).stdout
    assert "secret" not in shown


def test_there_is_one_unit_of_a_name(desk: Desk) -> None:
    """The second is refused, whether the first runs or has ended; nothing is changed by that."""
    first = desk.start("/bin/sleep", "1000")
    with pytest.raises(UnitExistsError):
        desk.start("/bin/true")
    assert desk.state().pid == first.pid
    os.kill(first.pid, signal.SIGKILL)
    assert (desk.ended().code, desk.ended().status) == (2, signal.SIGKILL)
    with pytest.raises(UnitExistsError):
        desk.start("/bin/true")
    assert desk.environments() == []


@pytest.mark.parametrize(
    ("argv", "cwd", "is_without"),
    [(("/nowhere",), "/", "program"), (("/etc/passwd",), "/", "program"), (("/bin/true",), "/nowhere", "directory")],
)
def test_what_could_not_be_started_leaves_nothing(desk: Desk, argv: tuple[str, ...], cwd: str, is_without: str) -> None:
    """It is said what it was for want of; its name is free, and no file is left."""
    with pytest.raises(NotStartedError) as raised:
        desk.start(*argv, cwd=cwd)
    assert (raised.value.is_without_program, raised.value.is_without_directory) == (
        is_without == "program",
        is_without == "directory",
    )
    assert desk.state() == State()
    assert desk.environments() == []
    desk.start("/bin/true")


def test_what_ends_at_once_has_started(desk: Desk) -> None:
    """Well, badly, or by a signal: all of that is its own affair."""
    for script, code, status in (("exit 0", 1, 0), ("exit 1", 1, 1), ("kill -9 $$", 2, 9)):
        desk.start("/bin/sh", "-c", script)
        assert (desk.ended().code, desk.ended().status) == (code, status)
        desk.units.forget(desk.name)


def test_a_program_that_takes_its_time_to_start_keeps_nobody_waiting(desk: Desk, tmp_path: Path) -> None:
    """Its user can let the kernel wait for him with a lease: others start meanwhile, and it does when he lets go."""
    with _held(tmp_path / "program") as program:
        starting = desk.units.begin(desk.order(str(program)), desk.stdio)
        stays(lambda: desk.units.started(starting) is None, "it runs")
        other = Desk(tmp_path / "other-x", desk.units)
        with closing(other):
            assert other.start("/bin/true")
            assert desk.units.started(starting) is None
            _let_go()
            started = eventually(lambda: desk.units.started(starting), "it does not start")
    assert started.pid


def test_whoever_is_slower_than_anybody_waits_is_found_by_name(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say then that it will not run: there is a unit of that name."""
    with _held(tmp_path / "program") as program:
        with monkeypatch.context() as patch:
            patch.setattr(bus, "PATIENCE", 0.3)
            with pytest.raises(TooSlowError):
                desk.start(str(program))
        assert desk.units.fence(desk.name) is False
        state = desk.state()
        assert (state.active, state.is_fence) == ("activating", False)
        assert processes_in(state.cgroup) == [state.pid]
        desk.units.forget(desk.name)
    assert desk.state() == State()


class _held:  # noqa: N801 - it is used like a function
    """A program that the kernel asks us about before anybody may start it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Path:
        path = self.path
        path.write_bytes(Path("/bin/true").read_bytes())
        path.chmod(0o755)
        self.before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.fd = _HELD[0] = os.open(path, os.O_RDONLY)
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return path

    def __exit__(self, *_: object) -> None:
        with suppress(BlockingIOError):  # it was let go of before
            _let_go()
        os.close(self.fd)
        signal.signal(signal.SIGIO, self.before)


_HELD = [-1]


def _let_go() -> None:
    fcntl.fcntl(_HELD[0], fcntl.F_SETLEASE, fcntl.F_UNLCK)


def test_nobody_but_systemd_is_believed_when_he_says_that_a_start_has_failed(desk: Desk, tmp_path: Path) -> None:
    """Any user may send whatever signal he likes to whomever he likes."""
    with _held(tmp_path / "program") as program:
        starting = desk.units.begin(desk.order(str(program)), desk.stdio)
        name = starting.manager._bus.unique_name
        forged = ["--system", "--type=signal", f"--dest={name}", "/org/freedesktop/systemd1"]
        forged += ["org.freedesktop.systemd1.Manager.JobRemoved", f"uint32:{starting.job.path.rpartition('/')[2]}"]
        forged += [f"objpath:{starting.job.path}", f"string:{desk.name}", "string:failed"]
        entry = pwd.getpwnam("nobody")
        sent = subprocess.run(["dbus-send", *forged], user=entry.pw_uid, group=entry.pw_gid, check=False)
        assert sent.returncode == 0
        assert select.select([starting.manager], [], [], PATIENCE)[0], "nothing of it has come"
        stays(lambda: desk.units.started(starting) is None, "he is believed")
        _let_go()
        assert eventually(lambda: desk.units.started(starting), "it does not start")


# --- Fencing, looking, ending ---


def test_a_fence_keeps_a_unit_from_being_started(desk: Desk) -> None:
    """It is known for what it is; taken away, the name is free again."""
    assert desk.units.fence(desk.name) is True
    with pytest.raises(UnitExistsError):
        desk.start("/bin/true")
    assert desk.units.fence(desk.name) is False
    assert desk.state().is_fence
    assert desk.name in desk.units.names()
    desk.units.forget(desk.name)
    assert desk.name not in desk.units.names()
    desk.start("/bin/true")
    assert not desk.state().is_fence


@pytest.mark.parametrize("script", ["sleep 1000", "exit 3"])
def test_a_fence_that_comes_too_late_says_so(desk: Desk, script: str) -> None:
    """There is a unit, running or over: it is left as it is."""
    pid = desk.start("/bin/sh", "-c", script).pid
    assert desk.units.fence(desk.name) is False
    assert (desk.state().pid, desk.state().is_fence) == (pid, False)


def test_what_is_forgotten_is_ended_first(desk: Desk) -> None:
    """All of it, deaf and daemonised; and nothing is known of it afterwards. To do so again is no trouble."""
    script = "trap '' TERM HUP; setsid sleep 1000 & (setsid sleep 1000 &) ; wait"
    started = desk.start("/bin/sh", "-c", script)
    eventually(lambda: len(processes_in(started.cgroup)) >= 3, "it does not start its processes")
    for _ in range(2):
        desk.units.forget(desk.name)
        assert processes_in(started.cgroup) == []
        assert desk.state() == State()
    desk.units.signal(desk.name, signal.SIGKILL)


def test_only_units_of_agents_are_listed(desk: Desk) -> None:
    """By what they are called."""
    desk.start("/bin/sleep", "1000")
    names = desk.units.names()
    assert desk.name in names
    assert all(name.startswith("fairlead-run-") for name in names)


def test_a_lost_connection_is_made_anew_for_what_may_be_asked_twice(desk: Desk) -> None:
    """Looking, signalling, listing; a job is not asked for again, since nobody knows whether it was heard."""
    desk.start("/bin/sleep", "1000")
    for ask in (desk.state, desk.units.names, lambda: desk.units.signal(desk.name, signal.SIGCONT)):
        _cut(desk.units)
        ask()
    _cut(desk.units)
    with pytest.raises(NoManagerError):
        desk.units.fence(unit_of("other", 1))
    assert desk.units.state(unit_of("other", 1)) == State()


def _cut(units: TransientUnits) -> None:
    assert units._manager
    units._manager._bus.sock.shutdown(2)


def test_whoever_waits_for_a_start_hears_of_a_lost_connection(desk: Desk, tmp_path: Path) -> None:
    """He does not wait for an answer that nobody will give."""
    with _held(tmp_path / "program") as program:
        starting = desk.units.begin(desk.order(str(program)), desk.stdio)
        _cut(desk.units)
        with pytest.raises(NoManagerError):
            eventually(lambda: desk.units.started(starting), "he waits")
        assert desk.environments() != []  # it may not have been read yet
        desk.units.forget(desk.name)
        assert desk.environments() == []


def test_nothing_stays_open_of_units(desk: Desk) -> None:
    """However many were started, refused or lost."""
    desk.start("/bin/true", sandbox={"memory_max": 1 << 26})
    desk.units.forget(desk.name)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(10):
        desk.start("/bin/true", sandbox={"memory_max": 1 << 26})
        with pytest.raises(UnitExistsError):
            desk.start("/bin/true", sandbox={"memory_max": 1 << 26})
        desk.units.forget(desk.name)
        with pytest.raises(NotStartedError):
            desk.start("/nowhere", sandbox={"memory_max": 1 << 26})
        if number % 3 == 0:
            _cut(desk.units)
            desk.state()
    assert len(os.listdir("/proc/self/fd")) == before


# --- An agent in a unit ---


class Lossy(TransientUnits):
    """Units of which answers get lost: of so many calls of each kind, after or before the deed."""

    def __init__(self, folder: str, error: Exception, **lost: str) -> None:
        super().__init__("system", folder)
        self.error = error
        #: By call: `before`, `after`, or nothing any more.
        self.lost = lost

    def _lose(self, call: str, do: Any) -> Any:  # noqa: ANN401 - whatever is done
        when = self.lost.pop(call, "")
        if when == "before":
            raise self.error
        answer = do()
        if when == "after":
            raise self.error
        return answer

    def start(self, order: Order, stdio: tuple[int, int, int]) -> Started:
        started: Started = self._lose("start", lambda: super(Lossy, self).start(order, stdio))
        return started

    def fence(self, name: str) -> bool:
        was_free: bool = self._lose("fence", lambda: super(Lossy, self).fence(name))
        return was_free

    def state(self, name: str) -> State:
        state: State = self._lose("state", lambda: super(Lossy, self).state(name))
        return state

    def forget(self, name: str) -> None:
        self._lose("forget", lambda: super(Lossy, self).forget(name))


class Agent:
    """An agent in a unit, as its supervisor has it."""

    def __init__(self, desk: Desk, place: Place, *argv: str) -> None:
        self.desk = desk
        self.launch = place.launch(argv)
        self.poll = select.poll()
        self.agent = UnitAgent(desk.units, InUnit(name=desk.name, description="a test", by="system"), self.poll)

    def start(self) -> None:
        """Start it."""
        self.agent.start(self.launch, self.desk.stdio)

    def end(self) -> End:
        """Look until it has ended with all of it."""
        eventually(self.agent.look, "it does not end")
        assert self.agent.end
        return self.agent.end


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two tries nobody waits long."""
    monkeypatch.setattr(in_unit, "_PAUSE", 0.01)


LOST = NoManagerError("lost")
MARK = "touch started-$$; exit 7"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", [LOST, PorterError("no")], ids=["lost", "refused"])
@pytest.mark.parametrize("more", [{}, {"fence": "before"}, {"fence": "after"}, {"state": "before"}])
def test_a_start_whose_answer_was_lost_is_found(
    tmp_path: Path, place: Place, error: Exception, more: dict[str, str]
) -> None:
    """It was heard: the agent is there, once, and is looked after, whatever gets lost next."""
    units = Lossy(str(tmp_path), error, start="after", **more)
    with closing(Desk(tmp_path, units)) as desk:
        agent = Agent(desk, place, *shell(MARK))
        agent.start()
        assert agent.end() == End(code=7)
    assert len(list(place.work.iterdir())) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", [LOST, PorterError("no")], ids=["lost", "refused"])
@pytest.mark.parametrize(
    "more",
    [{}, {"fence": "before"}, {"fence": "after"}, {"state": "before"}, {"forget": "before"}, {"forget": "after"}],
)
def test_a_start_that_was_not_heard_has_not_happened(
    tmp_path: Path, place: Place, error: Exception, more: dict[str, str]
) -> None:
    """Whatever gets lost next: a fence is never taken for an agent that did its work."""
    units = Lossy(str(tmp_path), error, start="before", **more)
    with closing(Desk(tmp_path, units)) as desk:
        agent = Agent(desk, place, *shell(MARK))
        with pytest.raises(OSError, match=str(error)) as raised:
            agent.start()
        assert is_machine_trouble(raised.value) is (error is LOST)
        assert desk.state() == State()
        assert desk.environments() == []
    assert list(place.work.iterdir()) == []


@pytest.mark.parametrize("call", ["state", "pidfd_open", "processes_in"])
def test_an_agent_that_nobody_can_look_at_is_there(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """No descriptor left, no systemd to ask: it is not taken for gone, and its end is seen later."""
    units = Lossy(str(tmp_path), LOST)
    with closing(Desk(tmp_path, units)) as desk:
        agent = Agent(desk, place, *shell("read line; exit 5"))
        reader, writer = os.pipe()
        with monkeypatch.context() as patch:
            if call == "pidfd_open":
                patch.setattr(os, call, _no_descriptor)
            agent.agent.start(agent.launch, (reader, desk.writer, desk.writer))
        os.close(reader)
        assert not agent.agent.look()
        with monkeypatch.context() as patch:
            if call == "processes_in":
                patch.setattr(in_unit, call, _no_descriptor)
                assert agent.agent.processes() == []
            os.write(writer, b"\n")
            os.close(writer)
            eventually(lambda: desk.state().has_ended, "it does not end")
            if call == "state":
                units.lost["state"] = "before"
            if call != "pidfd_open":
                assert not agent.agent.look()
        assert agent.end() == End(code=5)


def _no_descriptor(*_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_an_agent_that_was_stopped_by_hand_is_over(desk: Desk, place: Place) -> None:
    """An administrator may do that: nothing of it is left, and it is no success."""
    agent = Agent(desk, place, *shell("trap 'exit 0' TERM; sleep 1000 & wait"))
    agent.start()
    eventually(lambda: len(agent.agent.processes()) == 2, "it does not start its child")
    subprocess.run(["systemctl", "stop", desk.name], check=True)
    assert agent.end().cause == "its unit was stopped by somebody"
    assert agent.agent.processes() == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [(("/bin/true", "x" * 200_000), errno.E2BIG), (("/bin/true", "a\0b"), None), (("/nowhere",), errno.ENOENT)],
)
def test_what_the_bus_would_not_bear_is_not_sent(
    desk: Desk, place: Place, argv: tuple[str, ...], why: int | None
) -> None:
    """It is said in words, and everybody else's connection stays."""
    desk.state()
    manager = desk.units._manager
    with pytest.raises((OSError, ValueError)) as raised:
        Agent(desk, place, *argv).start()
    assert getattr(raised.value, "errno", None) == why
    assert desk.state() == State()
    assert desk.units._manager is manager


# --- Supervisors that are killed ---

KILLED = [
    ("fairlead.conductor.rundir:announce", "after", 0),
    ("fairlead.systemd.transient:TransientUnits._put_environment", "after", 0),
    ("fairlead.systemd.transient:TransientUnits._begin_job", "before", 0),
    ("fairlead.systemd.transient:TransientUnits._begin_job", "after", 1),
    ("fairlead.systemd.transient:TransientUnits.start", "after", 1),
    ("fairlead.conductor.in_unit:UnitAgent._watch", "after", 1),
    ("fairlead.conductor.run:Run.conclude", "before", 1),
]


@pytest.mark.parametrize(("where", "when", "starts"), KILLED)
def test_nothing_is_left_of_a_killed_supervisors_run_and_nothing_starts_late(
    place: Place, where: str, when: str, starts: int
) -> None:
    """At whatever place it dies: its agent started once at the most, is gone, and its name is taken."""
    run_dir = place.make(shell("touch started-$$; sleep 0.2; echo over >over-$$"))
    supervisor = _doomed(run_dir, where, when)
    assert supervisor.wait(PATIENCE) == -signal.SIGKILL
    meta = state(run_dir)
    assert meta
    remains = Remains(lambda: "system", str(place.path))
    assert remains.end(meta.lock_id, 1, meta.lock_id, meta) == []
    assert len(list(place.work.glob("started-*"))) <= starts
    with closing(Desk(place.path)) as desk:
        desk.name = unit_of(meta.lock_id, 1)
        assert processes_in(desk.state().cgroup) == []
        with pytest.raises(UnitExistsError):
            desk.start("/bin/true")


def _doomed(run_dir: str, where: str, when: str) -> "subprocess.Popen[bytes]":
    root = str(Path(__file__).parents[3])
    return subprocess.Popen([sys.executable, "-c", DOOMED, where, when, run_dir], cwd=root, env={"PYTHONPATH": root})


@pytest.mark.parametrize(
    ("where", "when"),
    [
        ("fairlead.conductor.run:Run.end", "after"),
        ("fairlead.conductor.in_unit:UnitAgent.leave", "before"),
        ("fairlead.conductor.in_unit:UnitAgent.leave", "after"),
    ],
)
def test_an_end_that_was_written_stands(place: Place, where: str, when: str) -> None:
    """Whoever dies after that leaves a unit at the most, which is over."""
    run_dir = place.make(shell("exit 7"))
    _doomed(run_dir, where, when).wait(PATIENCE)
    meta = state(run_dir)
    assert meta
    assert (meta.status, meta.exit_code) == ("failed", 7)
    with closing(Desk(place.path)) as desk:
        desk.name = unit_of(meta.lock_id, 1)
        assert processes_in(desk.state().cgroup) == []


# --- The bus goes away ---


def test_a_bus_that_is_started_anew_takes_no_agent_with_it(place: Place) -> None:
    """Its supervisor goes on, hears of its end, and tells it as it was."""
    run_dir, supervisor = place.begin(shell("until [ -e go ]; do sleep 0.01; done; exit 7"))
    pid = running(run_dir).pid
    subprocess.run(["systemctl", "restart", "dbus.service"], check=True)
    (place.work / "go").touch()
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.exit_code, meta.pid) == ("failed", 7, pid)


def test_an_end_while_there_is_no_bus_is_told_when_there_is_one(place: Place) -> None:
    """Until then the run counts as there: nobody else may have its lock."""
    run_dir, supervisor = place.begin(shell("until [ -e go ]; do sleep 0.01; done; exit 7"))
    running(run_dir)
    try:
        subprocess.run(["systemctl", "stop", "dbus.socket", "dbus.service"], check=True)
        (place.work / "go").touch()
        stays(lambda: supervisor.poll() is None and running(run_dir).status == "running", "it is taken for over")
    finally:
        subprocess.run(["systemctl", "start", "dbus.socket", "dbus.service"], check=True)
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.exit_code) == ("failed", 7)


def test_without_a_bus_nothing_starts_and_nothing_is_lost(place: Place) -> None:
    """Its supervisor makes sure, for as long as that takes, and gives the run back."""
    try:
        subprocess.run(["systemctl", "stop", "dbus.socket", "dbus.service"], check=True)
        run_dir, supervisor = place.begin(shell("touch started"))
        stays(lambda: supervisor.poll() is None, "it gives up")
    finally:
        subprocess.run(["systemctl", "start", "dbus.socket", "dbus.service"], check=True)
    assert supervisor.wait(PATIENCE) == 0
    meta = state(run_dir)
    assert meta
    assert (meta.status, meta.reason) == ("void", "no_room")
    assert not (place.work / "started").exists()


def test_a_bus_that_is_started_anew_again_and_again_doubles_nothing(place: Place) -> None:
    """Runs begin and end while it comes and goes: each agent was started once, or its run was given back."""
    runs = [place.begin(agent("note", place.work / f"ran-{number}", "x")) for number in range(6)]
    for _ in range(4):
        subprocess.run(["systemctl", "reset-failed", "dbus.service"], check=False)
        subprocess.run(["systemctl", "restart", "dbus.service"], check=True)
    for number, (run_dir, supervisor) in enumerate(runs):
        assert supervisor.wait(PATIENCE) == 0
        meta = state(run_dir)
        assert meta
        ran = place.work / f"ran-{number}"
        times = ran.read_text().count("x") if ran.exists() else 0
        assert (meta.status, times) in (("completed", 1), ("void", 0)), meta.error
