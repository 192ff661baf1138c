"""Per-user isolation, played with real agents: what must never happen, and what happens when something dies."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.proof.processes import kill
from tests.support.instance import NO_POLLS, ROOT, Home
from tests.support.patience import eventually, stays
from tests.support.programs import started

from fairlead.queue.states import Status

LONG = "until [ -e go ]; do sleep 0.02; done"


# ---------------------------------------------------------------------- the lost update


def increments(home: Home) -> str:
    """An agent that reads a number, thinks, and writes the next one, twenty times."""
    file = f"{home.work}/number"
    return (
        f"touch {home.work}/ready-$FAIRLEAD_TASK_ID; until [ -e {home.work}/begin ]; do sleep 0.01; done;"
        f"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do"
        f"  read n < {file}; sleep 0.005; echo $((n + 1)) > {file}.$$; mv {file}.$$ {file}; done"
    )


def play_increments(home: Home, *, together: int) -> int:
    """Two agents of one user at that file; they begin when so many of them run. Returns the last number."""
    number = Path(home.work, "number")
    number.write_text("0\n", encoding="ascii")
    home.up()
    ids = home.submit_all([home.document(increments(home)) for _ in range(2)])
    eventually(lambda: len(list(home.work.glob("ready-*"))) == together, f"{together} run")
    Path(home.work, "begin").touch()
    assert {task.status for task in home.wait_over(*ids)} == {Status.COMPLETED}
    return int(number.read_text(encoding="ascii"))


def test_no_update_is_lost(home: Home) -> None:
    """Two agents of one user work on one file: the second begins when the first has ended, so both count."""
    assert play_increments(home, together=1) == 40


def test_without_serialization_updates_are_lost(home: Home) -> None:
    """The same two agents at the same time overwrite each other: the story above could have failed."""
    home.configure(per_user_serialization={"enabled": False})
    assert play_increments(home, together=2) < 40


# ---------------------------------------------------------------------- contention


def test_the_contention_table(home: Home) -> None:
    """Two dispatchers, alice locked: both pass her over, one starts bob; when she is free, one of them starts her."""
    first, second, watchdog = home.dispatcher(), home.dispatcher(), home.watchdog()
    alice = [home.submit(LONG, user="alice")]
    first.run_once()
    assert home.task(alice[0]).status is Status.CLAIMED
    alice += [home.submit(LONG, user="alice") for _ in range(2)]
    first.run_once()
    second.run_once()
    assert [home.task(one).status for one in alice[1:]] == [Status.QUEUED] * 2
    bob = home.submit(LONG, user="bob")
    second.run_once()
    assert home.task(bob).status is Status.CLAIMED
    locked = {lock.user for lock in home.store.locks()}
    assert locked == {"alice", "bob"}
    assert sorted(name for name in os.listdir(home.paths.locks) if name.endswith(".lock")) == [
        "user_alice.lock",
        "user_bob.lock",
    ]
    kill(home.supervisor_of(alice[0]))
    home.play(lambda: home.is_over(alice[0]), None, watchdog)
    second.run_once()
    first.run_once()
    assert [home.task(one).status for one in alice[1:]] == [Status.CLAIMED, Status.QUEUED]
    assert {lock.user for lock in home.store.locks()} == {"alice", "bob"}


def test_two_dispatchers_at_once_start_everything_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes at the same queue, thirty tasks of six users: each starts once, no user overlaps, slots hold."""
    home.configure(slots={"max": 5})
    monkeypatch.setenv("FAIRLEAD_HOME", str(home.path))
    watchdog = home.watchdog()
    script = home.counted(
        f"mkdir {home.work}/busy-$FAIRLEAD_USER || touch {home.work}/overlap; sleep 0.02;"
        f" rmdir {home.work}/busy-$FAIRLEAD_USER"
    )
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, len(home.active()))
        return home.is_over(*ids)

    with started("stories", "dispatch"), started("stories", "dispatch"):
        ids = home.submit_all([home.document(script, user=f"user{number % 6}") for number in range(30)])
        home.play(done, None, watchdog)
    assert home.starts() == sorted(ids)
    assert {home.task(one).status for one in ids} == {Status.COMPLETED}
    assert {home.task(one).attempt for one in ids} == {1}
    assert not Path(home.work, "overlap").exists()
    assert most <= 5
    pids = {event.detail["pid"] for event in home.store.events(limit=10_000) if event.event == "claimed"}
    assert len(pids) == 2, "both dispatchers took part"


# ---------------------------------------------------------------------- failures


def test_agent_crash(home: Home) -> None:
    """An agent that is killed fails its task; the lock is released at once and the next task proceeds."""
    home.configure(**NO_POLLS)
    home.up()
    task = home.submit(f"echo $$ > {home.work}/pid; exec sleep 1000", user="alice")
    following = home.submit(user="alice")
    pid = int(eventually(lambda: _text(home.work / "pid"), "the agent runs"))
    os.kill(pid, signal.SIGKILL)
    crashed, after = home.wait_over(task, following)
    assert crashed.outcome
    assert (crashed.status, crashed.outcome.reason, crashed.outcome.signal) == (Status.FAILED, "signal", "SIGKILL")
    assert after.status is Status.COMPLETED


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip() if path.exists() else ""


def test_queue_daemon_crash(home: Home) -> None:
    """Locks stay with the runs; a user whose task ended meanwhile is free when the next daemon starts, at once."""
    home.configure(**NO_POLLS)
    daemon, _ = home.up()
    tasks = {user: home.submit(home.counted(f"until [ -e {user} ]; do sleep 0.02; done"), user=user) for user in "ab"}
    for task in tasks.values():
        home.wait_status(task, Status.RUNNING)
    home.stop(daemon, number=signal.SIGKILL)
    following = {user: home.submit(home.counted(), user=user) for user in "ab"}
    Path(home.path, "a").touch()
    home.wait_over(tasks["a"])
    assert {lock.user for lock in home.store.locks()} == {"b"}
    home.start("daemon")
    home.wait_over(following["a"])
    stays(lambda: home.task(following["b"]).status is Status.QUEUED, "b still runs")
    Path(home.path, "b").touch()
    home.wait_over(*following.values())
    assert len(home.starts()) == 4


def test_lock_file_corruption(home: Home) -> None:
    """Spoilt metadata of a held lock is made anew; of a lock that nobody holds it is kept aside and freed."""
    home.configure(intervals={"watch": 0.1})
    home.up()
    task = home.submit(LONG, user="alice")
    home.wait_status(task, Status.RUNNING)
    bob = f"bob-{os.getpid()}"  # his runs are looked for on the whole machine
    held, orphan = Path(home.locks_file("alice")), Path(home.locks_file(bob))
    named = f'"acquired_by_pid": {home.supervisor_of(task).pid},'
    eventually(lambda: named in held.with_suffix(".json").read_text("utf-8"), "the start is told beside the lock, too")
    for path in (held, held.with_suffix(".json"), orphan):
        path.write_text('{"user": ', encoding="utf-8")
    eventually(lambda: _is_json(held), "the mirror is made anew")
    assert json.loads(held.read_text("utf-8"))["task_id"] == task
    assert home.task(task).status is Status.RUNNING
    home.wait_over(home.submit(user=bob))
    aside = os.listdir(os.path.join(home.paths.locks, "aside"))
    assert any("alice" in name for name in aside)
    assert any("bob" in name for name in aside)
    Path(home.path, "go").touch()
    home.wait_over(task)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text("utf-8"))
    except (ValueError, FileNotFoundError):
        return False
    return True


def test_fair_scheduling_with_locks(home: Home) -> None:
    """While alice's lock is held by hand, bob and carol take turns; released, she runs too."""
    home.configure(slots={"max": 1}, **NO_POLLS)
    instance = home.open()
    lock = instance.locks.acquire("alice", "hold-1", timeout=0)
    assert lock is not None
    home.up()
    note = f"echo $FAIRLEAD_USER >> {home.work}/order; sleep 0.05"
    alice = home.submit(note, user="alice")
    others = home.submit_all([home.document(note, user=user) for user in ("bob", "bob", "bob", "carol", "carol")])
    home.wait_over(others[0], others[3])
    assert home.task(alice).status is Status.QUEUED
    instance.locks.release("alice", lock.lock_id)
    home.wait_over(alice, *others)
    order = Path(home.work, "order").read_text(encoding="ascii").split()
    assert order.index("carol") <= 2
    assert "alice" in order
    assert order.count("bob") == 3


# ---------------------------------------------------------------------- all of a run is gone


def test_a_run_that_double_forks_is_gone_before_the_next_one_starts(home: Home) -> None:
    """A deaf process in a session of its own holds a file's lock for life: the next task finds it free."""
    home.configure(**NO_POLLS)
    home.up()
    program = [sys.executable, "-m", "tests.stories.programs"]
    lock, pid_file = home.work / "flock", home.work / "pid"
    documents = [
        {"user": "ann", "command": [*program, "leave_daemon", str(lock), str(pid_file)], "env": _import_path()},
        {"user": "ann", "command": [*program, "look_for_daemon", str(lock)], "env": _import_path()},
    ]
    leaving, looking = home.submit_all(documents)
    first, second = home.wait_over(leaving, looking)
    assert first.status is Status.COMPLETED
    assert second.status is Status.COMPLETED, second.outcome
    assert not os.path.exists(f"/proc/{pid_file.read_text(encoding='ascii')}")


def _import_path() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT)}
