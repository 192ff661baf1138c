"""up: both services in the foreground, as somebody who tries Fairlead out sees them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import CTRL_C, Run, process, terminal
from tests.cli.test_services import SERVICES, pid_of
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.base.bell import is_heard
from fairlead.cli.access import Access
from fairlead.cli.commands import up
from fairlead.queue.states import Status


def both_run(home: Home) -> bool:
    return all(is_heard(home.paths.bells, name) for name in SERVICES)


def wait_both(home: Home) -> None:
    eventually(lambda: both_run(home), "the services do not start")


def test_it_greets_runs_tasks_and_shows_what_happens(home: Home) -> None:
    """A file that is dropped where the greeting says becomes a line per event; the log's lines are in the log."""
    with terminal(home, "up") as one:
        one.shows(f"fairlead runs at {home.path}\n")
        one.shows(f"drop task files into {home.paths.spool}, or use `fairlead submit`\n")
        one.shows(f"the log is {home.paths.log_file}; Ctrl-C stops\n")
        wait_both(home)
        home.drop("hello.json", "echo hello", title="Say hello")
        task_id = home.only_task().id
        home.wait_over(task_id)
        one.shows("  ann         \x1b[32mcompleted       \x1b[0m  Say hello (")
        assert "daemon_starts" not in one.text
        one.type(CTRL_C)
        assert one.ended() == 0
        assert one.text.endswith("fairlead stops\n")
        assert "started again" not in one.text
    assert not any(is_heard(home.paths.bells, name) for name in SERVICES)
    assert home.log("daemon_starts")


def test_agents_go_on_and_the_next_one_finds_them(home: Home, tmp_path: Path) -> None:
    """Ctrl-C in the terminal stops the services, not the agents; the next `up` records their end."""
    gate = tmp_path / "gate"
    with terminal(home, "up") as one:
        wait_both(home)
        task_id = home.submit(f"while [ ! -e {gate} ]; do sleep 0.01; done")
        home.ring("daemon")
        home.wait_status(task_id, Status.RUNNING)
        supervisor = home.supervisor_of(task_id)
        one.type(CTRL_C)
        assert one.ended() == 0
        assert "fairlead stops; 1 task running: agents go on, and the next `fairlead up` finds all" in one.text
    assert os.path.exists(f"/proc/{supervisor.pid}")
    home.submit(user="ann")
    with terminal(home, "up") as one:
        one.shows("it goes on with 1 task running and 1 task waiting\n")
        gate.touch()
        assert home.wait_over(task_id)[0].status is Status.COMPLETED
        one.shows("completed")
        one.type(CTRL_C)
        assert one.ended() == 0


@pytest.mark.parametrize("name", SERVICES)
def test_a_killed_service_is_started_again(home: Home, name: str) -> None:
    """It is told, and a moment later there is a new one."""
    with terminal(home, "up") as one:
        wait_both(home)
        pid = pid_of(home, name)
        os.kill(pid, signal.SIGKILL)
        one.shows(f"the {name} was killed by SIGKILL; it is started again\n")
        eventually(lambda: is_heard(home.paths.bells, name) and pid_of(home, name) != pid, "it is not started again")
        one.type(CTRL_C)
        assert one.ended() == 0


def test_the_end_of_the_terminal_is_the_end(home: Home) -> None:
    """Whoever closes the window leaves no services behind."""
    with terminal(home, "up") as one:
        wait_both(home)
        one.hang_up()
        one.process.wait(60)
    eventually(lambda: not any(is_heard(home.paths.bells, name) for name in SERVICES), "services stay behind")


def test_the_end_of_the_reader_is_the_end(home: Home) -> None:
    """`up | head` ends with head, whether something happens or not."""
    with process(home, "up") as one:
        wait_both(home)
        assert one.stdout
        one.stdout.close()
        assert one.wait(60) == 0
    assert not both_run(home)


def test_hup_reads_the_settings_again(home: Home) -> None:
    """Both services are told."""
    with process(home, "up") as one:
        wait_both(home)
        home.logged("daemon_starts")
        home.logged("watchdog_starts")
        home.configure(slots={"max": 7})
        one.send_signal(signal.SIGHUP)
        for name in SERVICES:
            home.logged("settings_reloaded", process=name)
        one.send_signal(signal.SIGTERM)
        assert one.wait(60) == 0


def test_a_second_one_is_refused(run: Run) -> None:
    """Where services run already, there is nothing to start, but something to look at."""
    rest = "already for this instance; `fairlead events -f` shows what happens."
    run.home.start("daemon")
    assert run.refusal("up", code=5) == f"the daemon runs {rest}"
    run.home.start("watchdog")
    assert run.refusal("up", code=5) == f"the watchdog and the daemon run {rest}"


def test_wrong_settings_are_told_before_anything_is_started(home: Home) -> None:
    """Exit code 2."""
    home.configure(slots={"maxx": 1})
    done = home.cli("up", code=2)
    assert "slots.maxx" in done.stderr
    assert done.stdout == ""


def test_a_service_that_refuses_to_work_ends_it(home: Home) -> None:
    """It would refuse again and again: its words are shown, and its exit code is passed on."""
    with process(home, "up") as one:
        wait_both(home)
        home.configure(slots={"maxx": 1})
        os.kill(pid_of(home, "daemon"), signal.SIGKILL)
        out, err = one.communicate(timeout=60)
    assert one.returncode == 2
    assert "the daemon was killed by SIGKILL; it is started again" in out
    assert "slots.maxx" in err
    assert not is_heard(home.paths.bells, "watchdog")


def test_a_service_that_ends_with_an_error_is_told_with_its_code() -> None:
    """Exit codes and signals read differently."""
    assert up._end(1) == "ended with exit code 1"
    assert up._end(-15) == "was killed by SIGTERM"


def test_a_service_that_does_not_stop_is_killed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to wait for ever for Ctrl-C; killing a service harms nothing."""
    monkeypatch.setattr(up, "PATIENCE", 0.01)
    run.home.open()
    deaf = [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"]
    with subprocess.Popen(deaf, stdout=subprocess.PIPE) as service:
        assert service.stdout
        service.stdout.readline()
        one = up.Up(Access(run.home.paths))
        one._services["daemon"] = service
        one.stop()
        assert service.wait(60) == -signal.SIGKILL
