"""The daemon as a process: one per instance, reloads, stops gracefully, detaches; and one-shot processing."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.proof.processes import identify
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually, stays

from fairlead.base.bell import is_heard
from fairlead.base.logs import open_log
from fairlead.base.service import AlreadyRunningError, Single
from fairlead.daemon import process as module
from fairlead.daemon.dispatcher import SHOW_EVERY
from fairlead.daemon.process import Daemon
from fairlead.queue import service
from fairlead.queue.claims import MACHINE_TROUBLE, NOBODY_CAME
from fairlead.queue.states import Status
from fairlead.queue.task import Task
from fairlead.watchdog.process import WatchdogProcess

LONG = "until [ -e go ]; do sleep 0.02; done"


def make_daemon(home: Home) -> Daemon:
    """A daemon in this process, not yet running."""
    return Daemon(home.paths, home.environ, open_log(home.paths.log_file, "daemon"))


# ---------------------------------------------------------------------- one of a kind


def test_a_second_daemon_is_refused_by_a_lock_of_the_kernel(home: Home) -> None:
    """It is told the first one's pid and exits; when the first is killed, the next one may start at once."""
    first = home.start("daemon")
    refused = home.cli("daemon", code=5)
    assert f"the daemon runs already for this instance, with pid {first.pid}" in refused.stderr
    assert is_heard(home.paths.bells, "daemon")
    home.stop(first, number=signal.SIGKILL)
    home.start("daemon")


def test_who_waits_for_its_turn_has_not_opened_the_store(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may be replaced while a successor waits: it opens what is there when it is its turn."""
    monkeypatch.setattr(Single.take, "__defaults__", (0.0,))
    first, watchdog = make_daemon(home), WatchdogProcess(home.paths, home.environ, open_log(home.paths.log_file, "w"))
    opened: list[str] = []
    monkeypatch.setattr(service, "Instance", lambda *_: opened.append("opened"))
    for make in (Daemon, WatchdogProcess):
        with pytest.raises(AlreadyRunningError):
            make(home.paths, home.environ, open_log(home.paths.log_file, "again"))
    assert opened == []
    first.close()
    watchdog.close()


# ---------------------------------------------------------------------- settings


def test_hangup_reads_the_settings_again(home: Home) -> None:
    """Raised slots fill at once, without a restart, and the log says what changed."""
    home.configure(slots={"max": 1}, **NO_POLLS)
    daemon, watchdog = home.up()
    ids = [home.submit(LONG, user=user) for user in ("ann", "bob")]
    eventually(lambda: len(home.active()) == 1, "one runs")
    stays(lambda: len(home.active()) == 1, "one slot is one slot")
    home.configure(slots={"max": 2}, **NO_POLLS)
    daemon.send_signal(signal.SIGHUP)
    eventually(lambda: len(home.active()) == 2, "both run")
    assert "slots.max" in str(home.logged("settings_reloaded", process="daemon")["changed"])
    assert home.cli("events").stdout.count("settings reloaded  slots.max") == 1
    watchdog.send_signal(signal.SIGHUP)
    home.logged("settings_reloaded", process="watchdog")
    assert home.store.facts()["slots_max"] == "2"
    Path(home.path, "go").touch()
    home.wait_over(*ids)


def test_wrong_settings_are_refused_and_the_old_ones_stay(home: Home) -> None:
    """A reload of a broken file is logged with its problems; both services go on as before."""
    daemon, watchdog = home.up()
    Path(home.paths.config_file).write_text("slots: {max: many}\n", encoding="utf-8")
    for one, name in ((daemon, "daemon"), (watchdog, "watchdog")):
        one.send_signal(signal.SIGHUP)
        assert "slots.max" in home.logged("settings_refused", process=name)["error"]
    eventually(lambda: "settings refused" in home.cli("events").stdout, "it is told to those who follow the events")
    home.drop("task.json")
    home.wait_over(home.only_task().id)
    assert home.store.facts()["slots_max"] == "4"


def test_a_ring_reads_the_settings_again(home: Home) -> None:
    """Who may not signal may ring."""
    home.up()
    for name in ("daemon", "watchdog"):
        home.ring(name, "reload")
        home.logged("settings_reloaded", process=name)


def test_new_settings_are_handed_on_as_soon_as_the_store_allows(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store is busy at that moment, the next pass does it."""
    daemon = make_daemon(home)
    daemon.prepare()
    home.configure(slots={"max": 9}, intervals={"settle": 7.0})
    daemon._hear({"reload"})
    with monkeypatch.context() as patch:
        patch.setattr(daemon.instance.store, "set_shares", _fail)
        with pytest.raises(ZeroDivisionError):
            daemon.dispatcher.use_settings()
    assert daemon.instance.store.facts()["slots_max"] == "4"
    daemon.dispatcher.use_settings()
    assert daemon.instance.store.facts()["slots_max"] == "9"
    assert daemon.dispatcher.spool.settle == 7.0
    assert daemon.dispatcher.admission.config.slots.max == 9
    daemon.close()


def test_wrong_settings_change_nothing(home: Home) -> None:
    """They are refused with their problems."""
    daemon = make_daemon(home)
    Path(home.paths.config_file).write_text("slots: 3\n", "utf-8")
    daemon.waiter.asked_to_reload = True
    daemon._hear(set())
    assert not daemon.waiter.asked_to_reload
    assert "slots" in home.logged("settings_refused")["error"]
    assert not daemon.dispatcher.has_new_settings
    daemon.close()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_daemon_without_inotify_warns_only_if_it_wanted_it(home: Home, wanted: bool) -> None:  # noqa: FBT001
    """Whoever switched it off knows."""
    home.configure(spool={"inotify": wanted})
    daemon = make_daemon(home)
    daemon.dispatcher.spool.close()
    daemon.dispatcher.spool.inotify = None
    daemon.prepare()
    assert len(home.log("no_inotify")) == int(wanted)
    daemon.close()


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


# ---------------------------------------------------------------------- sleeping


def test_how_long_the_daemon_sleeps(home: Home) -> None:
    """Until the poll, the next due task or the settling of a file, whichever comes first; not at all if work waits."""
    home.configure(intervals={"poll": 100.0, "settle": 3.0})
    daemon = make_daemon(home)
    daemon.prepare()
    dispatcher = daemon.dispatcher
    assert daemon._pass()
    assert 90.0 < daemon._pause() <= 100.0
    home.submit(run_at="+50s")
    dispatcher.run_once()
    assert 40.0 < daemon._pause() <= 50.0
    dispatcher.settling = True
    assert 2.0 < daemon._pause() <= 3.0
    dispatcher.show_capacity()
    assert 0.0 < daemon._pause() <= SHOW_EVERY
    dispatcher.show_at = None
    home.configure(intervals={"settle": 0.0})
    daemon._hear({"reload"})
    assert daemon._pause() == pytest.approx(module.SHORTEST_PAUSE)
    dispatcher.waiting_names = ["x"]
    assert daemon._pause() == 0.0
    dispatcher.waiting_names, dispatcher.has_more = [], True
    assert daemon._pause() == 0.0
    dispatcher.has_more, dispatcher.next_due = False, 0
    assert daemon._pause() == 0.0
    daemon.close()


# ---------------------------------------------------------------------- stopping and detaching


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_graceful_stop_leaves_agents_alone(home: Home, number: signal.Signals) -> None:
    """Both services exit with 0; the agent goes on, and the next services see its end."""
    home.up()
    task = home.submit(home.counted(LONG))
    home.wait_status(task, Status.RUNNING)
    supervisor = home.supervisor_of(task)
    home.stop(number=number)
    assert [service.returncode for service in home.services] == [0, 0]
    assert not is_heard(home.paths.bells, "daemon")
    assert identify(supervisor.pid) == supervisor
    Path(home.path, "go").touch()
    eventually(lambda: home.meta(task).ended, "the agent ends without services")
    home.up()
    assert home.wait_over(task)[0].status is Status.COMPLETED
    assert home.starts() == [task]


def test_detached_services_leave_their_pid(home: Home) -> None:
    """`--detach` returns when the service works; the pid beside its kernel-held lock is the service's."""
    pids = {}
    for name, path in ((name, home.paths.single_lock(name)) for name in ("daemon", "watchdog")):
        home.cli(name, "--detach")
        pids[name] = int(Path(path).read_text(encoding="ascii"))
        assert home.log(f"{name}_starts")[0]["pid"] == pids[name]
    home.wait_over(home.submit())
    for name, pid in pids.items():
        os.kill(pid, signal.SIGTERM)
        home.logged(f"{name}_stops", pid=pid)
    eventually(lambda: not any(is_heard(home.paths.bells, name) for name in pids), "both are gone")


def test_a_daemon_refuses_to_start_beside_tasks_without_a_store(home: Home) -> None:
    """A store that is missing while accepted tasks are there is not replaced by an empty one."""
    home.submit()
    home.clear_opened()
    for name in os.listdir(home.path):
        if name.startswith("queue.db"):
            Path(home.path, name).unlink()
    for name in ("daemon", "watchdog"):
        assert "fairlead rebuild" in home.cli(name, code=5).stderr
    assert not os.path.exists(home.paths.store)


# ---------------------------------------------------------------------- one-shot


def test_dispatch_once_starts_what_may_start_and_returns(home: Home) -> None:
    """For timers and cron: agents go on without any service; the next call records what has ended."""
    home.configure(slots={"max": 2})
    ids = home.submit_all([home.document(home.counted(), user=user) for user in ("ann", "bob", "eve")])
    for _ in range(20):
        home.cli("dispatch", "--once")
        if home.is_over(*ids):
            break
        eventually(lambda: not _unended(home), "the runs end by themselves")
    assert {home.task(one).status for one in ids} == {Status.COMPLETED}
    assert home.starts() == sorted(ids)


def _unended(home: Home) -> list[Task]:
    """Runs whose end nobody has written yet."""
    metas = [(task, home.spoken(task.id)) for task in home.active() if os.path.isdir(home.run_dir(task))]
    return [task for task, meta in metas if meta is None or not meta.ended]


def test_dispatch_until_empty_stays_until_all_is_done(home: Home) -> None:
    """What is due is done when it returns; what is not due waits."""
    ids = home.submit_all([home.document(home.counted(), user=user) for user in ("ann", "ann", "bob")])
    later = home.submit(run_at="+1d")
    said = json.loads(home.cli("dispatch", "--until-empty", "--json").stdout)
    assert said["active"]["slots_used"] == 0
    assert said["pending"] == {"critical": 0, "high": 0, "medium": 1, "low": 0, "total": 1, "not_due": 1}
    assert {home.task(one).status for one in ids} == {Status.COMPLETED}
    assert home.task(later).status is Status.QUEUED
    assert home.starts() == sorted(ids)


def test_a_daemon_rests_when_a_supervisor_found_no_room(home: Home) -> None:
    """Nothing is started for a moment: each try would take more of what there is too little of."""
    daemon = make_daemon(home)
    task = home.submit()
    daemon._hear({f"{MACHINE_TROUBLE}: no space"})
    daemon.dispatcher.run_once()
    assert home.task(task).status is Status.QUEUED
    assert home.log("no_room_to_start")[0]["error"].endswith("no space")
    daemon.close()


def test_a_spawner_that_sends_nobody_is_left_when_the_watchdog_says_so(home: Home) -> None:
    """The next start brings another one."""
    daemon = make_daemon(home)
    daemon._hear({NOBODY_CAME})
    assert home.log("spawner_left")
    assert daemon.dispatcher.launcher.pid is None
    daemon.close()
