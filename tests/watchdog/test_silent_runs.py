"""Runs without a pulse, and what cannot be proven dead."""

import os
import signal
from typing import Any

import pytest
from msgspec.structs import replace
from tests.proof.evidence import Process
from tests.proof.processes import is_alive, kill
from tests.support.instance import Home
from tests.watchdog.running import begin, gone_on, outcome_of

from fairlead.base.identity import ProcessId, this_process
from fairlead.conductor import rundir
from fairlead.conductor.meta import read_meta, write_meta
from fairlead.queue.states import Status
from fairlead.watchdog import pulse
from fairlead.watchdog.watchdog import Watchdog

# ---------------------------------------------------------------------- hangs


def test_a_silent_run_is_ended_after_its_lease(home: Home) -> None:
    """A supervisor that does not beat for its whole lease is killed with all that is below it, then the lock moves."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 1.0})
    task, dispatcher, watchdog = begin(home)
    supervisor, noted = home.supervisor_of(task), [Process(*one) for one in home.meta(task).processes]
    assert noted
    os.kill(supervisor.pid, signal.SIGSTOP)
    watchdog.run_once()
    assert home.task(task).status is Status.RUNNING
    home.play(lambda: home.is_over(task), dispatcher, watchdog)
    ended = outcome_of(home, task)
    assert (ended.status, ended.reason) == (Status.FAILED, "hang")
    assert "no heartbeat for 1 s" in ended.error
    assert ended.evidence == {"proof": "all processes were killed and seen gone", "left": []}
    assert not is_alive(supervisor)
    assert not any(map(is_alive, noted))
    following = home.submit()
    home.play(lambda: home.is_over(following), dispatcher, watchdog)


def test_a_supervisor_that_looks_after_another_run_is_not_ended_for_this_one(home: Home) -> None:
    """What is left of the silent run is ended; who has nothing to do with it any more is not hit."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 1.0})
    task, _, watchdog = begin(home)
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
    with gone_on(home, task) as supervisor:
        home.play(lambda: home.is_over(task), None, watchdog)
        assert outcome_of(home, task).reason == "hang"
        assert is_alive(supervisor)


def test_a_run_far_beyond_its_limit_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that does not enforce the time limit is ended some time after it, within its lease."""
    monkeypatch.setattr(pulse, "MARGIN", 0.1)
    task, _, watchdog = begin(home, timeout="1s")
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
    home.play(lambda: home.is_over(task), None, watchdog)
    assert (outcome_of(home, task).status, outcome_of(home, task).reason) == (Status.FAILED, "timeout")


def test_without_a_limit_a_beating_run_goes_on(home: Home) -> None:
    """Where the agent has no time limit there is no hard stop."""
    home.configure(agents={"shell": {"command": ["/bin/sh", "-c", "{prompt}"], "timeout": 0}})
    task, _, watchdog = begin(home)
    assert watchdog.runs.pulses.of(home.task(task).token, 0.0).hard_stop == float("inf")


def test_an_end_that_was_written_at_the_last_moment_counts(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow supervisor that wrote the end while it was being given up has witnessed it."""
    home.configure(per_user_serialization={"lock_timeout_seconds": 0.5})
    task, _, watchdog = begin(home)
    run_dir = home.run_dir(home.task(task))
    os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)

    end = watchdog.runs.remains.end

    def end_late(*run: Any) -> list[ProcessId]:  # noqa: ANN401 - as the real one
        meta = read_meta(run_dir)
        meta.status, meta.reason, meta.finished_at = Status.COMPLETED, "exit", 1
        write_meta(run_dir, meta, synced=False)
        return end(*run)

    monkeypatch.setattr(watchdog.runs.remains, "end", end_late)
    home.play(lambda: home.is_over(task), None, watchdog)
    assert home.task(task).status is Status.COMPLETED


def test_a_pid_that_passed_to_a_stranger_is_not_touched(home: Home) -> None:
    """A supervisor's pid alone proves nothing: whoever has it now, but another start time, is left alone."""
    task, _, watchdog = begin(home)
    [lock] = home.store.locks()
    holder = replace(lock.holder, pid=this_process().pid, start=this_process().start - 1)
    assert watchdog.runs._end_tree(home.task(task), replace(lock, holder=holder), None) == []
    assert home.task(task).status is Status.RUNNING


# ---------------------------------------------------------------------- pulses


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """While the machine sleeps runs cannot beat: a lease is counted by looks, not by the clock alone."""
    pulses = pulse.Pulses()
    one = pulses.of(1, 100.0)
    one.hard_stop = 1000.0
    pulses.begin_look(100.0, 5.0)
    pulses.begin_look(106.0, 5.0)
    assert (one.changed, one.hard_stop) == (100.0, 1000.0)
    pulses.begin_look(5111.0, 5.0)
    assert (one.first_seen, one.changed, one.hard_stop) == (5100.0, 5100.0, 6000.0)
    unlimited = pulses.of(2, 5111.0)
    pulses.begin_look(9999.0, 5.0)
    assert unlimited.hard_stop is None
    pulses.keep_only({2})
    assert pulses.of(1, 7.0).first_seen == 7.0


def test_a_beat_counts_when_it_changes() -> None:
    """The time that a heartbeat names is for people; a watchdog sees that its number, or the file's time, has moved."""
    seen = pulse.Pulse(first_seen=0.0)
    assert pulse.feel(seen, (1, 100), 10.0)
    assert not pulse.feel(seen, (1, 100), 20.0)
    assert seen.changed == 10.0
    assert not pulse.is_silent(seen, 20.0, 10.0)
    assert pulse.is_silent(seen, 20.1, 10.0)
    assert pulse.feel(seen, (1, 200), 30.0)
    assert pulse.feel(seen, (2, 200), 40.0)
    assert seen.changed == 40.0


# ---------------------------------------------------------------------- quarantine


def quarantine(home: Home, monkeypatch: pytest.MonkeyPatch, how: str) -> tuple[str, Watchdog]:
    """A run of which something is said to be alive although it was killed: this very process stands in for it."""
    if how == "hang":
        home.configure(per_user_serialization={"lock_timeout_seconds": 2.0})
    task, _, watchdog = begin(home)
    survivor = this_process()
    with monkeypatch.context() as patch:
        patch.setattr(watchdog.runs.remains, "end", lambda *_: [survivor])
        if how == "lost":
            kill(home.supervisor_of(task))
        else:
            os.kill(home.supervisor_of(task).pid, signal.SIGSTOP)
        home.play(lambda: home.is_over(task), None, watchdog)
    return task, watchdog


@pytest.mark.parametrize("how", ["lost", "hang"])
def test_what_cannot_be_proven_dead_keeps_its_lock(home: Home, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The task has ended, its user's lock is kept and shown, `why` says so, and an operator's word frees it."""
    task, watchdog = quarantine(home, monkeypatch, how)
    assert home.task(task).status is (Status.LOST if how == "lost" else Status.FAILED)
    watchdog.run_once()
    [lock] = home.store.locks()
    assert lock.state == "quarantined"
    assert not read_meta(rundir.finished_dir(home.paths.conductor, "default", task, 1)).lock_released
    assert lock.evidence["left"] == [list(this_process())]
    assert os.path.exists(home.locks_file("ann"))
    following, other = home.submit(user="ann"), home.submit(user="bob")
    dispatcher = home.dispatcher()
    home.play(lambda: home.is_over(other), dispatcher, watchdog)
    assert home.task(following).status is Status.QUEUED
    assert [one.reason for one in home.why(following).obstacles][:2] == ["no_daemon", "quarantined"]
    assert f"task {task}" in home.why(following).obstacles[1].detail
    assert home.log("quarantined", level="warning", task=task)
    refused = home.cli("lock", "release", "ann", code=5)
    assert "--force" in refused.stderr
    home.cli("lock", "release", "ann", "--force")
    home.play(lambda: home.is_over(following), dispatcher, watchdog)
    past = next(one for one in home.store.past_locks(10) if one.task_id == task)
    assert past.evidence["was"] == "quarantined"
    assert past.why.startswith("forced by")


def test_a_quarantine_ends_when_the_last_process_is_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the survivor lives the lock stays; its death is the proof that was missing."""
    _, watchdog = quarantine(home, monkeypatch, "lost")
    watchdog.run_once()
    [lock] = home.store.locks()
    home.quarantine(lock, {"left": [[this_process().pid, 1]]})
    watchdog.run_once()
    assert home.store.locks() == []
    assert not os.path.exists(home.locks_file("ann"))
    assert home.store.past_locks(1)[0].evidence == {"proof": "nothing of the run is alive any more"}


def test_a_quarantine_ends_with_the_boot(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever could not be killed did not outlive the machine."""
    _, watchdog = quarantine(home, monkeypatch, "lost")
    home.store.db.run("UPDATE locks SET boot_id = 'another'")
    watchdog.run_once()
    assert home.store.locks() == []
