"""pause, resume, drain: start nothing more, and go on."""

from pathlib import Path

import pytest
from tests.cli.running import Run, process, wait_waiting

from fairlead.queue.states import Status


def test_pausing_and_resuming(run: Run) -> None:
    """A scope is paused with its reason, told by status, and resumed; all is the default."""
    run.home.open()
    assert run.lines("pause", "user:ann", "--reason", "lunch") == [
        "paused: user:ann; `fairlead resume user:ann` goes on"
    ]
    assert run.lines("pause") == ["paused: all; `fairlead resume all` goes on"]
    assert sorted(run.json("status")["paused"]) == ["all", "user:ann"]
    assert run.lines("resume") == ["all goes on"]
    assert run.lines("resume") == ["all was not paused"]
    assert run.home.store.pauses()[0].reason == "lunch"


def test_pausing_for_programs(run: Run) -> None:
    """What was paused or resumed, and whether it was."""
    run.home.open()
    assert run.json("pause", "project:x") == {"paused": "project:x"}
    assert run.json("resume", "project:x") == {"resumed": "project:x", "was_paused": True}
    assert run.json("resume", "project:x") == {"resumed": "project:x", "was_paused": False}


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_scope_that_is_none_is_refused(run: Run, command: str) -> None:
    """The error names the scopes that there are."""
    run.home.open()
    assert run.refusal(command, "ann", code=2).endswith("write `all`, `user:NAME` or `project:NAME`.")
    assert "cannot be a user" in run.refusal(command, "user:", code=2)


def test_draining_an_idle_instance(run: Run) -> None:
    """Nothing runs: it returns at once, and the pause stays."""
    run.home.open()
    assert run.lines("drain") == ["nothing runs; `fairlead resume` goes on"]
    assert run.json("drain") == {"drained": True}
    assert run.json("status")["paused"] == ["all"]


def test_draining_waits_for_what_runs(run: Run, tmp_path: Path) -> None:
    """It returns when the last task has ended; what waited still waits."""
    gate = tmp_path / "gate"
    run.home.up()
    running = run.home.submit(f"while [ ! -e {gate} ]; do sleep 0.01; done")
    run.home.ring("daemon")
    run.home.wait_status(running, Status.RUNNING)
    with process(run.home, "drain") as one:
        wait_waiting(run.home, "drain", one)
        waiting = run.home.submit(user="bob")
        run.home.ring("daemon")
        gate.touch()
        out, err = one.communicate(timeout=60)
    assert (one.returncode, out, err) == (0, "nothing runs; `fairlead resume` goes on\n", "")
    assert run.home.task(running).status is Status.COMPLETED
    assert run.home.task(waiting).status is Status.QUEUED


def test_draining_gives_up_in_time(run: Run) -> None:
    """Exit code 6 with how much still runs, and a word if nobody would see its end."""
    run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    said = run("drain", "--timeout", "0.01", code=6)
    assert "no watchdog runs for" in said.err
    assert "not ended in time: 1 task; `fairlead status` shows them, nothing new starts; " in said.err
    assert said.err.endswith("`fairlead resume` goes on.\n")
    assert run.json("status")["paused"] == ["all"]
