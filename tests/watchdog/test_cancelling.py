"""Cancelling: whatever state a task is in, and however deaf its agent."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.proof.processes import identify
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually
from tests.watchdog.running import LONG, SilentLauncher, begin, outcome_of

from fairlead.base.identity import ProcessId
from fairlead.conductor import rundir
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.queue.states import Status
from fairlead.watchdog import runs


def test_a_queued_task_is_cancelled_at_once(home: Home) -> None:
    """It is archived with the answer, and nothing can bring it back."""
    task = home.submit()
    home.operations().cancel(task, by="ann")
    ended = home.task(task)
    assert (ended.status, ended.archived) == (Status.CANCELLED, True)
    home.dispatcher().run_once()
    home.assert_tidy()


def test_a_task_is_cancelled_although_there_is_no_room_for_its_record(home: Home) -> None:
    """The answer is that it was cancelled, which is so; the watchdog writes its record down when it can."""
    task = home.submit()
    os.rename(home.paths.archive, f"{home.path}/away")
    Path(home.paths.archive).touch()
    assert home.operations().cancel(task, by="ann").status is Status.CANCELLED
    assert not home.task(task).archived
    assert home.log("archived_later", level="warning", task=task)
    os.unlink(home.paths.archive)
    home.watchdog().run_once()
    assert home.task(task).archived
    home.assert_tidy()


def test_a_claimed_task_is_cancelled_before_it_starts(home: Home) -> None:
    """Nobody waits for a supervisor that need not come; if it comes late it finds nothing to do."""
    launcher = SilentLauncher(home.paths.error_log, home.paths.bells)
    dispatcher, watchdog = home.dispatcher(launcher), home.watchdog()
    task = home.submit(home.counted())
    dispatcher.run_once()
    run_dir = home.run_dir(home.task(task))
    home.operations().cancel(task, by="ann")
    watchdog.run_once()
    assert home.task(task).status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by ann before it started"
    ProcessLauncher.launch(launcher, run_dir)
    following = home.submit(home.counted())
    home.play(lambda: home.is_over(following), home.dispatcher(), watchdog)
    assert home.starts() == [following]
    watchdog.run_once()
    home.assert_tidy()


def test_a_running_task_is_asked_to_stop(home: Home) -> None:
    """The ring reaches the watchdog, the signal the agent, and the end says who wanted it."""
    home.configure(**NO_POLLS)
    home.up()
    task = home.submit(LONG)
    home.wait_status(task, Status.RUNNING)
    home.operations().cancel(task, by="eve")
    [ended] = home.wait_over(task)
    assert ended.status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by eve"
    assert len(home.log("asked_to_stop", task=task)) == 1


#: Somebody who would end by TERM, and tells that it was asked to look.
LOOKING = """if True:
    import signal

    signal.signal(signal.SIGUSR1, lambda *_: print("asked", flush=True))
    print("ready", flush=True)
    while True:
        signal.pause()
"""


def test_a_request_to_stop_that_comes_late_harms_nobody(home: Home) -> None:
    """Its supervisor may have another run by now: what it is sent must mean nothing without the note."""
    task, _, watchdog = begin(home)
    with subprocess.Popen([sys.executable, "-c", LOOKING], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "ready\n"
        process = identify(other.pid)
        assert process
        home.operations().cancel(task, by="eve")
        watchdog.runs._ask_to_stop(home.task(task), ProcessId(process.pid, process.start))
        assert other.stdout.readline() == "asked\n"
        other.kill()


def test_a_request_that_cannot_be_written_down_is_carried_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for the note nobody can be asked; after its time it is ended all the same."""
    monkeypatch.setattr(runs, "MARGIN", 0.1)
    task, _, watchdog = begin(home, grace=0.1)
    monkeypatch.setattr(runs, "write_atomically", _no_room)
    home.operations().cancel(task, by="eve")
    home.play(lambda: home.is_over(task), None, watchdog)
    assert outcome_of(home, task).error == "cancelled by eve; it had to be killed"
    assert home.log("cannot_ask_to_stop", level="warning", task=task)


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_request_to_stop_survives_the_watchdog(home: Home) -> None:
    """A watchdog that was killed between the note and the signal is no excuse: its successor signals."""
    task, dispatcher, _ = begin(home)
    note = Path(home.run_dir(home.task(task)), rundir.CANCEL)
    note.write_text('{"by": "eve"}', "utf-8")
    home.operations().cancel(task, by="eve")
    home.play(lambda: home.is_over(task), dispatcher, home.watchdog())
    assert home.task(task).status is Status.CANCELLED


def test_a_deaf_agent_is_cancelled_all_the_same(home: Home) -> None:
    """After its grace everything of it is ended by force."""
    task, dispatcher, watchdog = begin(home, f'trap "" TERM; touch {home.work}/deaf; ' + LONG)
    eventually(lambda: Path(home.work, "deaf").exists(), "the agent is deaf")
    home.operations().cancel(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.CANCELLED


def test_a_run_that_cannot_hear_is_cancelled_all_the_same(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor is stopped: some time after it was asked, all of it is killed, long before its lease is over."""
    monkeypatch.setattr(runs, "MARGIN", 0.2)
    home.configure(limits={"grace": 0.0})
    task, dispatcher, watchdog = begin(home)
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
    home.operations().cancel(task, by="ann")
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    assert home.task(task).status is Status.CANCELLED
    assert outcome_of(home, task).error == "cancelled by ann; it had to be killed"
    assert home.store.locks() == []
