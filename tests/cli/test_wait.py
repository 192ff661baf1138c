"""wait: until tasks have ended, by notification."""

import os
import subprocess
from pathlib import Path

from tests.cli.running import Run, process, wait_waiting
from tests.support.instance import FAIRLEAD, NO_POLLS, ROOT
from tests.support.patience import stays

from fairlead.base.bell import ring_all


def test_waiting_for_ended_tasks_returns_at_once(run: Run) -> None:
    """0 if all completed, 1 if one did not; each is told with its error."""
    good, bad = run.played("true"), run.played("exit 3")
    assert run.lines("wait", good) == [f"{good} completed"]
    assert run.lines("wait", good, bad, code=1) == [
        f"{good} completed",
        f"{bad} failed: the agent ended with exit code 3",
    ]
    assert run.lines("wait", good, good) == [f"{good} completed"]


def test_waiting_for_programs(run: Run) -> None:
    """One object per id, in the order in which they were asked for."""
    good, bad = run.played("true"), run.played("exit 3")
    assert run.json("wait", bad, good, code=1) == [
        {"id": bad, "status": "failed", "reason": "exit", "exit_code": 3, "error": "the agent ended with exit code 3"}
        | {"result": None},
        {"id": good, "status": "completed", "reason": "exit", "exit_code": 0, "error": "", "result": None},
    ]


def test_a_task_that_was_cancelled_while_it_waited_has_ended(run: Run) -> None:
    """It did not complete: exit code 1."""
    task_id = run.home.submit()
    run("cancel", task_id)
    assert run.lines("wait", task_id, code=1)[0].startswith(f"{task_id} cancelled")
    assert run.json("wait", task_id, code=1)[0]["status"] == "cancelled"


def test_time_is_up(run: Run) -> None:
    """--timeout gives up with exit code 6, names what has not ended, and says how to find out why."""
    good, waits = run.played("true"), run.home.submit(run_at="+1h")
    said = run("wait", good, waits, "--timeout", "0.01s", code=6)
    assert said.out == f"{good} completed\n"
    assert said.err.endswith(f"fairlead: not ended in time: {waits}; `fairlead why {waits}` says why.\n")
    assert "argument --timeout: 'x' is not a duration" in run.refusal("wait", waits, "--timeout", "x", code=2)


def test_an_unknown_task_is_not_waited_for(run: Run) -> None:
    """A wrong id is an error before anything is waited for."""
    task_id = run.home.submit()
    assert "there is no task nosuch" in run.refusal("wait", task_id, "nosuch", code=4)


def test_an_end_is_heard_not_found_by_looking(run: Run) -> None:
    """Who waits sleeps until the watchdog rings: nothing here polls within the test's time."""
    run.home.configure(**NO_POLLS)
    run.home.up()
    task_id = run.home.submit("sleep 0.2")
    with process(run.home, "wait", task_id) as one:
        run.home.ring("daemon", "queued")
        out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (0, f"{task_id} completed\n")


def test_a_lost_task_that_is_run_again_has_not_ended(run: Run, tmp_path: Path) -> None:
    """Between being lost and being queued again an idempotent task is not over; whoever waits waits on."""
    gate = tmp_path / "gate"
    task_id = run.home.submit(f"while [ ! -e {gate} ]; do sleep 0.01; done", idempotent=True)
    dispatcher, watchdog = run.home.dispatcher(), run.home.watchdog()
    run.home.play(lambda: bool(run.home.meta(task_id).pid), dispatcher, watchdog)
    with process(run.home, "wait", task_id) as one:
        wait_waiting(run.home, "wait", one)
        os.kill(run.home.supervisor_of(task_id).pid, 9)
        watchdog.look_around = True
        while run.home.task(task_id).status != "lost":
            watchdog.record_runs()
        ring_all(run.home.paths.bells, "freed")
        stays(lambda: one.poll() is None, "it is waited for", 0.5)
        gate.touch()
        run.home.play(lambda: run.home.task(task_id).status == "completed", dispatcher, watchdog)
        out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (0, f"{task_id} completed\n")


def test_a_lost_task_that_is_not_run_again_has_ended(run: Run) -> None:
    """One that may not be run twice, or was lost too often, is over when it is lost."""
    run.home.configure(limits={"reruns": 0})
    for idempotent in (False, True):
        task_id = run.home.submit("sleep 60", idempotent=idempotent)
        dispatcher, watchdog = run.home.dispatcher(), run.home.watchdog()
        run.home.play(lambda: bool(run.home.meta(task_id).pid), dispatcher, watchdog)  # noqa: B023 - played at once
        os.kill(run.home.supervisor_of(task_id).pid, 9)
        run.home.play(lambda: run.home.task(task_id).archived, None, watchdog)  # noqa: B023 - played at once
        assert run.lines("wait", task_id, code=1)[0].startswith(f"{task_id} lost: nobody saw its end")


def test_the_exit_code_counts_even_if_nobody_reads(run: Run) -> None:
    """A reader who left does not make a failure a success."""
    bad = run.played("exit 3")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*FAIRLEAD, "wait", bad, bad],
        cwd=ROOT,
        env=run.home.environ,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, f"fairlead: note: `fairlead logs {bad}` shows its output\n".encode())
