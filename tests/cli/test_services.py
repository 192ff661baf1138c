"""daemon, watchdog and dispatch: the services as commands, in the foreground, the background, or one pass at a time."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.running import Run, process, terminal
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.base.bell import is_heard
from fairlead.base.errors import RefusedError
from fairlead.cli import services
from fairlead.config.schema import Config
from fairlead.queue.states import Status

SERVICES = ("daemon", "watchdog")


def in_background(home: Home, name: str) -> "subprocess.CompletedProcess[str]":
    """Start a service with --detach."""
    # A daemon closes every file it did not open, those of a coverage measurement too.
    home.environ = {name: value for name, value in home.environ.items() if not name.startswith("COVERAGE")}
    return home.cli(name, "--detach")


def pid_of(home: Home, name: str) -> int:
    """The pid that a service has written down."""
    return int(Path(home.paths.run, f"{name}.lock").read_text(encoding="ascii"))


# ---------------------------------------------------------------------- in the foreground


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_stops_when_asked(home: Home, name: str, number: int) -> None:
    """TERM and Ctrl-C end it with exit code 0."""
    service = home.start(name)
    home.stop(service, number=number)
    assert service.returncode == 0


@pytest.mark.parametrize("name", SERVICES)
def test_a_person_sees_the_log_on_a_terminal(home: Home, name: str) -> None:
    """Lines are readable there, unless --quiet asks for none; Ctrl-C stops it."""
    with terminal(home, name) as one:
        one.shows(f"{name}_starts")
        one.type(b"\x03")
        assert one.ended() == 0
    with terminal(home, name, "--quiet") as one:
        eventually(lambda: is_heard(home.paths.bells, name), f"the {name} does not start")
        home.logged(f"{name}_starts", pid=pid_of(home, name))
        one.type(b"\x03")
        assert one.ended() == 0
        assert f"{name}_" not in one.text


@pytest.mark.usefixtures("impatient")
def test_there_is_one_of_a_kind(run: Run) -> None:
    """A second one is refused with the pid of the first."""
    first = run.home.start("watchdog")
    wrong = run.refusal("watchdog", code=5)
    assert wrong == (
        f"the watchdog runs already for this instance, with pid {first.pid}: leave the work to it, or stop it first"
        f" with `kill {first.pid}`."
    )


@pytest.mark.parametrize("name", SERVICES)
def test_wrong_settings_keep_a_service_from_starting(home: Home, name: str) -> None:
    """The problem is told, with exit code 2."""
    home.configure(slots={"maxx": 1})
    for words in ((), ("--detach",)):
        assert "slots.maxx" in home.cli(name, *words, code=2).stderr


# ---------------------------------------------------------------------- in the background


def test_services_in_the_background(home: Home) -> None:
    """--detach returns when the service works; both run tasks, and stop when asked."""
    for name in SERVICES:
        said = in_background(home, name).stdout
        assert said.startswith(f"the {name} runs in the background; its pid is in {home.paths.run}/{name}.lock")
        assert is_heard(home.paths.bells, name)
    task_id = home.submit()
    home.ring("daemon")
    assert home.wait_over(task_id)[0].status is Status.COMPLETED
    pids = [pid_of(home, name) for name in SERVICES]
    for pid in pids:
        assert os.getsid(pid) != os.getsid(0)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "they do not stop")


def test_a_service_that_cannot_start_in_the_background_says_why(home: Home) -> None:
    """Who asked for it learns that another one runs already, with the exit code of the foreground."""
    first = home.start("daemon")
    done = home.cli("daemon", "--detach", code=5)
    assert done.stderr.startswith(
        f"fairlead: the daemon did not start: the daemon runs already for this instance, with pid {first.pid}: "
    )


def test_a_service_that_dies_at_its_start_says_where_to_look(home: Home) -> None:
    """What is no refusal is in the error log."""
    os.makedirs(home.paths.store)  # neither a database nor absent: nobody has foreseen that
    os.makedirs(os.path.join(home.paths.run, "daemon.lock"))
    os.rmdir(home.paths.store)
    done = home.cli("daemon", "--detach", code=6)
    assert done.stderr == f"fairlead: the daemon did not start: {home.paths.error_log} may say why.\n"
    eventually(lambda: "Is a directory" in Path(home.paths.error_log).read_text(encoding="utf-8"), "nothing is logged")


def test_a_killed_service_leaves_nothing_in_the_way_of_the_next(home: Home) -> None:
    """No pid file has to be removed by hand."""
    in_background(home, "watchdog")
    pid = pid_of(home, "watchdog")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_heard(home.paths.bells, "watchdog"), "it does not die")
    in_background(home, "watchdog")
    assert pid_of(home, "watchdog") != pid


class ShortLived:
    """A service that fails after it has worked."""

    def __init__(self, *_: object) -> None:
        self.closed = False

    def run(self, *, ready: Callable[[], None]) -> None:
        ready()
        raise RefusedError("enough")

    def close(self) -> None:
        self.closed = True


def test_a_service_that_fails_later_speaks_to_its_error_log(home: Home) -> None:
    """Once it has said that it works, nobody listens to the pipe any more: the error goes its usual way."""
    reader, writer = os.pipe()
    made = ShortLived()
    os.makedirs(home.paths.logs)
    with pytest.raises(RefusedError, match="enough"):
        services._run_and_tell("daemon", home.paths, Config(), lambda *_: made, writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"ready"
    assert made.closed


# ---------------------------------------------------------------------- one pass at a time


def test_one_pass_starts_and_the_next_records(run: Run, tmp_path: Path) -> None:
    """--once returns while the agent goes on; a later pass sees its end."""
    gate = tmp_path / "gate"
    task_id = run.home.submit(f"while [ ! -e {gate} ]; do sleep 0.01; done")
    assert run.lines("dispatch", "--once") == ["running: 1, waiting: 0"]
    gate.touch()

    def is_over() -> bool:
        run("dispatch", "--once")
        return run.home.is_over(task_id)

    eventually(is_over, "its end is not seen")
    assert run.lines("dispatch", "--once") == ["running: 0, waiting: 0"]


def test_dispatching_takes_dropped_files_in(run: Run) -> None:
    """A timer is enough: no service has to run."""
    run.home.configure(intervals={"settle": 1.0})  # so long it is too young to be complete
    run.home.drop("task.json")
    run("dispatch", "--until-empty")
    assert run.home.only_task().status is Status.COMPLETED


def test_until_nothing_is_left_to_do(run: Run) -> None:
    """All tasks of all users run, one after the other; what is not due stays."""
    ids = run.home.submit_all([run.home.document(user=user) for user in ("ann", "bob") for _ in range(3)])
    later = run.home.submit(run_at="+1h")
    assert run.lines("dispatch", "--until-empty") == ["running: 0, waiting: 1"]
    assert {run.home.task(one).status for one in ids} == {Status.COMPLETED}
    assert run.home.task(later).status is Status.QUEUED


@pytest.mark.parametrize("how", ["pause", "foreign"])
def test_what_cannot_start_is_not_waited_for(run: Run, how: str) -> None:
    """Paused tasks and those behind somebody's lock file would keep a timer's job for ever."""
    run.home.submit(user="ann")
    if how == "pause":
        run("pause")
    else:
        Path(run.home.paths.locks, "user_ann.lock").touch()
    assert run.lines("dispatch", "--until-empty") == ["running: 0, waiting: 1"]


def test_dispatching_for_programs(run: Run) -> None:
    """The state of the queue afterwards, as `status --json` tells it."""
    run.home.submit()
    answer = run.json("dispatch", "--until-empty")
    assert answer["finished"] == {"completed": 1}
    assert answer["active"]["slots_used"] == 0


def test_dispatching_says_how(run: Run) -> None:
    """Once, or until empty: a person has to choose."""
    assert "--once --until-empty is required" in run.refusal("dispatch", code=2)
    assert "not allowed with" in run.refusal("dispatch", "--once", "--until-empty", code=2)


@pytest.mark.usefixtures("impatient")
def test_dispatching_beside_a_service_is_refused(run: Run) -> None:
    """The services do it already."""
    run.home.start("watchdog")
    assert "the watchdog runs already" in run.refusal("dispatch", "--once", code=5)


def test_ctrl_c_ends_dispatching_and_agents_go_on(home: Home) -> None:
    """What was started is recorded by the next one."""
    task_id = home.submit("sleep 60")
    with process(home, "dispatch", "--until-empty") as one:
        supervisor = home.supervisor_of(task_id)
        eventually(lambda: home.task(task_id).status is Status.RUNNING, "it does not start")
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 130
    assert os.path.exists(f"/proc/{supervisor.pid}")
    assert subprocess.run(["kill", "-0", str(supervisor.pid)], check=False).returncode == 0
