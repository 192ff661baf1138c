"""lock hold: a command under a user's lock."""

import os
import signal
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.cli.running import CTRL_C, Run, process, terminal
from tests.support.patience import eventually

from fairlead.queue.states import Status

READY = "echo ready; exec sleep 60"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_it_exits_as_the_command_does(run: Run, script: str, code: int) -> None:
    """Exit codes are passed on, a signal as 128 and its number; the lock is free afterwards."""
    run("lock", "hold", "ann", "--", "sh", "-c", script, code=code)
    assert run.home.store.locks() == []
    past = run.home.store.past_locks(1)[0]
    assert past.why == "released by its holder"
    assert (past.evidence["proof"], past.evidence["exit_code"]) == ("its holder let go of it", code)
    assert os.listdir(run.home.paths.locks) == []


def test_no_agent_of_that_user_runs_meanwhile(run: Run) -> None:
    """The user's tasks wait, those of others do not; they start as soon as the command has ended."""
    run.home.up()
    with process(run.home, "lock", "hold", "ann", "--", "sh", "-c", "echo ready; read line", stdin=PIPE) as one:
        assert one.stdout
        one.stdout.readline()
        mine, others = run.home.submit(user="ann"), run.home.submit(user="bob")
        run.home.ring("daemon")
        run.home.wait_over(others)
        assert run.home.task(mine).status is Status.QUEUED
        assert f"pid {one.pid} holds the lock of ann" in run.home.why(mine).summary
        one.kill()
        # The command goes on, and so does the lock.
        run.home.ring("watchdog")
        assert run.home.store.lock("user:ann")
    run.home.wait_over(mine)


def test_who_waits_gets_the_lock_when_it_is_free(run: Run) -> None:
    """The second one hangs a bell, and runs after the first."""
    run.home.open()
    with process(run.home, "lock", "hold", "ann", "--", "sh", "-c", "echo ready; exec sleep 60") as first:
        assert first.stdout
        first.stdout.readline()
        with process(run.home, "lock", "hold", "ann", "--timeout", "60", "--", "echo", "second") as second:
            bell = f"lock-{second.pid}"
            eventually(lambda: any(name.startswith(bell) for name in os.listdir(run.home.paths.bells)), "no bell")
            lock = run.home.store.lock("user:ann")
            assert lock
            assert lock.holder.pid == first.pid
            # The sleeping command carries the lock's id; ending it ends the first holder.
            [command] = [one for one in run.home.processes() if _is_sleep(one.pid)]
            os.kill(command.pid, signal.SIGTERM)
            out, _ = second.communicate(timeout=60)
        assert first.wait(60) == 128 + signal.SIGTERM
    assert (second.returncode, out) == (0, "second\n")


def _is_sleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")


def test_who_does_not_get_it_in_time_is_refused(run: Run) -> None:
    """--timeout 0 tries once; the error says where to look."""
    run.home.open()
    Path(run.home.paths.locks, "user_ann.lock").touch()
    wrong = run.refusal("lock", "hold", "ann", "--timeout", "0", "--", "true", code=5)
    assert wrong == "the lock of ann was not free within 0 s; `fairlead locks` says who has it."
    assert run.home.store.locks() == []


def test_ctrl_c_is_for_the_command(run: Run) -> None:
    """The command decides what to do about it; its exit code is passed on, and the lock is freed."""
    script = "trap 'echo heard; exit 9' INT; echo ready; while :; do sleep 0.01; done"
    with terminal(run.home, "lock", "hold", "ann", "--", "sh", "-c", script) as one:
        one.shows("ready")
        assert run.home.store.lock("user:ann")
        one.type(CTRL_C)
        one.shows("heard")
        assert one.ended() == 9
    assert run.home.store.locks() == []


def test_ctrl_c_while_waiting_for_the_lock_gives_up(run: Run) -> None:
    """Nothing was started: exit code 130, and no bell is left."""
    run.home.open()
    Path(run.home.paths.locks, "user_ann.lock").touch()
    with terminal(run.home, "lock", "hold", "ann", "--timeout", "60", "--", "echo", "started") as one:
        eventually(lambda: os.listdir(run.home.paths.bells), "nobody listens")
        one.type(CTRL_C)
        assert one.ended() == 130
        assert "started" not in one.text
    assert os.listdir(run.home.paths.bells) == []


def test_a_killed_holder_leaves_the_lock_to_its_command(run: Run) -> None:
    """As long as what it started lives, the lock stays; then the watchdog frees it."""
    watchdog = run.home.watchdog()
    with process(run.home, "lock", "hold", "ann", "--", "sh", "-c", READY) as one:
        assert one.stdout
        one.stdout.readline()
        one.kill()
        one.wait(60)
        watchdog.run_once()
        assert run.home.store.lock("user:ann")
        wrong = run.refusal("lock", "release", "ann", "--force", code=5)
        assert "or what it started" in wrong
        [command] = [process for process in run.home.processes() if _is_sleep(process.pid)]
        os.kill(command.pid, signal.SIGKILL)

        def is_free() -> bool:
            watchdog.run_once()
            return run.home.store.lock("user:ann") is None

        eventually(is_free, "the lock of the dead stays")


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("ann",), "say which command to run: fairlead lock hold USER -- COMMAND"),
        (("ann", "--"), "say which command to run: fairlead lock hold USER -- COMMAND"),
        (("--", "true"), "the following arguments are required: USER"),
        (("../x", "--", "true"), "'../x' cannot be a user"),
        (("ann", "--", "/nonexistent"), "'/nonexistent' cannot be run: No such file or directory."),
        (("ann", "--", "/etc"), "'/etc' cannot be run: Permission denied."),
        (("ann", "--timeout", "x", "--", "true"), "argument --timeout: 'x' is not a duration"),
    ],
    ids=str,
)
def test_wrong_words_are_refused(run: Run, words: tuple[str, ...], wrong: str) -> None:
    """What cannot be run is told, and no lock stays behind."""
    assert run.refusal("lock", "hold", *words, code=2).startswith(wrong)
    assert not os.path.exists(run.home.paths.store) or run.home.store.locks() == []
