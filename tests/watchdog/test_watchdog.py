"""The watchdog's passes: a ring costs what it is about, the poll looks at everything, failures are repeated."""

import os
import signal
from pathlib import Path

import pytest
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually

from fairlead.base.bell import Listener
from fairlead.base.logs import open_log
from fairlead.queue.passes import guarded
from fairlead.queue.states import Status
from fairlead.watchdog.process import QUIET, WatchdogProcess

LONG = "until [ -e go ]; do sleep 0.02; done"


def test_rings_about_one_run_are_looked_at_alone(home: Home) -> None:
    """`started` and `ended` name their run; any other word, and silence, mean everything."""
    watchdog = home.watchdog()
    watchdog.hear({"ended a.1", "started a.1"})
    assert (watchdog.rung, watchdog.look_around) == ({"a.1"}, False)
    assert len(watchdog.steps()) == 2
    watchdog.hear({"ended b.1", "cancel"})
    assert (watchdog.rung, watchdog.look_around) == ({"a.1", "b.1"}, True)
    watchdog.hear(set())
    assert watchdog.look_around
    assert len(watchdog.steps()) == 8
    watchdog.has_more = True
    watchdog.hear(set())
    assert not watchdog.look_around


def test_only_the_run_that_rang_is_recorded(home: Home) -> None:
    """The other one has ended too, but was not rung for: it waits for the next look around."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    ids = [home.submit(user=user) for user in ("ann", "bob")]
    dispatcher.run_once()
    eventually(lambda: all(home.meta(one).ended for one in ids), "both end")
    watchdog.hear({f"ended {ids[0]}.1"})
    assert guarded(watchdog.steps(), watchdog.instance.log)
    assert [home.task(one).status for one in ids] == [Status.COMPLETED, Status.CLAIMED]
    watchdog.run_once()
    assert home.task(ids[1]).status is Status.COMPLETED


def test_a_ring_is_not_forgotten_when_its_look_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass looks at that run, though it was woken by another ring."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    watchdog.hear({f"ended {task}.1"})
    with monkeypatch.context() as patch:
        patch.setattr(watchdog.runs.store, "finish", _fail)
        assert not guarded(watchdog.steps(), watchdog.instance.log)
    watchdog.hear({"started other.1"})
    assert guarded(watchdog.steps(), watchdog.instance.log)
    assert home.task(task).status is Status.COMPLETED
    assert watchdog.rung == set()


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_who_waits_hears_that_somebody_is_free(home: Home) -> None:
    """The dispatcher and all commands that wait are rung once, not with every pass."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    listener = Listener(home.paths.bells, "daemon")
    watchdog.run_once()
    assert listener.take() == {"freed"}
    watchdog.run_once()
    assert listener.take() == set()
    listener.close()


def make(home: Home) -> WatchdogProcess:
    """The watchdog's process, in this one."""
    return WatchdogProcess(home.paths, home.environ, open_log(home.paths.log_file, "watchdog"))


def test_however_much_is_rung_a_look_around_is_due(home: Home) -> None:
    """Rings about single runs do not keep the poll away."""
    home.configure(intervals={"watch": 3600.0})
    process = make(home)
    assert process._pass()
    assert 3500.0 < process._pause() <= 3600.0
    process._hear({"ended a.1"})
    assert not process.watchdog.look_around
    process.next_look = 0.0
    assert process._pass()
    assert process.watchdog.look_around
    process.watchdog.has_more = True
    assert process._pause() == QUIET
    process.close()


def test_settings_are_read_again(home: Home) -> None:
    """By ring or signal; wrong ones are refused with their problems, and the old ones stay."""
    process = make(home)
    home.configure(per_user_serialization={"lock_timeout_seconds": 77.0})
    process._hear({"reload"})
    assert process.instance.lease == process.instance.locks.lease == 77.0
    Path(home.paths.config_file).write_text("slots: 3\n", "utf-8")
    process.waiter.asked_to_reload = True
    process._hear(set())
    assert not process.waiter.asked_to_reload
    assert "slots" in home.logged("settings_refused")["error"]
    assert process.instance.lease == 77.0
    process.close()


def test_runs_are_charged_by_the_settings_that_were_read_last(home: Home) -> None:
    """After a reload the watchdog charges what a run reports that it cost, where the settings say so now."""
    home.configure(fair_share={"half_life": 0})
    dispatcher, process = home.dispatcher(), make(home)
    home.configure(fair_share={"half_life": 0, "charge": "cost"})
    process._hear({"reload"})
    task = home.submit("""echo '{"cost": 5000}' > "$FAIRLEAD_RESULT\"""")
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    process.watchdog.run_once()
    process.close()
    assert home.task(task).status is Status.COMPLETED
    assert round(2 ** home.store.candidate("ann").standing) == 5000


def test_a_pass_that_fails_is_repeated_soon(home: Home) -> None:
    """Although the poll comes in an hour, trouble is looked at again after a second."""
    home.configure(**NO_POLLS)
    home.up()
    home.open()
    os.rmdir(home.paths.archive)
    Path(home.paths.archive).touch()
    task = home.submit()
    home.logged("step_failed", step="archive_finished")
    assert home.task(task).status is Status.COMPLETED
    Path(home.paths.archive).unlink()
    home.wait_over_for_good(task)


def test_a_watchdog_is_ready_after_its_first_pass(home: Home) -> None:
    """Who starts the services in order finds old locks free when the watchdog says that it works."""
    dispatcher = home.dispatcher()
    task = home.submit()
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it ends")
    process = make(home)
    seen: list[Status] = []

    def ready() -> None:
        seen.append(home.task(task).status)
        process.waiter.asked_to_stop = True

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    process.run(ready=ready)
    process.close()
    for number, handler in before.items():
        signal.signal(number, handler)
    assert seen == [Status.COMPLETED]
    assert home.log("watchdog_stops")


def test_a_second_watchdog_is_refused(home: Home) -> None:
    """One per instance, by a lock that the kernel frees."""
    first = home.start("watchdog")
    refused = home.cli("watchdog", code=5)
    assert f"the watchdog runs already for this instance, with pid {first.pid}" in refused.stderr
