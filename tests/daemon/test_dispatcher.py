"""One pass of the dispatcher: who is started, who is passed over, and what is shown of it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.instance import NO_POLLS, Home
from tests.support.patience import eventually, stays

from fairlead.base.clock import iso
from fairlead.conductor import rundir
from fairlead.daemon import dispatcher as module
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.states import Status
from fairlead.queue.task import Changes

#: A run that lasts until the test says so.
LONG = "until [ -e go ]; do sleep 0.02; done"


def statuses(home: Home, *ids: str) -> list[Status]:
    """Where these tasks are."""
    return [home.task(one).status for one in ids]


def finish_all(home: Home) -> None:
    """Let all runs end that wait for it."""
    Path(home.path, "go").touch()


# ---------------------------------------------------------------------- order and fairness


def test_a_users_tasks_run_one_after_the_other_in_order(home: Home) -> None:
    """By priority, then in the order they came; never two at once."""
    note = f"echo $FAIRLEAD_TASK_ID >> {home.work}/order"
    urgency = ["low", "medium", "high", "critical", "medium"]
    ids = home.submit_all([home.document(note, priority=one) for one in urgency])
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    seen: set[int] = set()

    def done() -> bool:
        seen.add(len(home.active()))
        return home.is_over(*ids)

    home.play(done, dispatcher, watchdog)
    order = Path(home.work, "order").read_text(encoding="ascii").split()
    assert order == [ids[3], ids[2], ids[1], ids[4], ids[0]]
    assert seen == {0, 1}


def test_slots_are_filled_and_never_exceeded(home: Home) -> None:
    """With two slots, two of five users start; a freed slot is given to the next."""
    home.configure(slots={"max": 2})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    ids = [home.submit(LONG, user=f"user{number}") for number in range(5)]
    dispatcher.run_once()
    dispatcher.run_once()
    assert statuses(home, *ids).count(Status.CLAIMED) == 2
    finish_all(home)
    most: list[int] = []

    def done() -> bool:
        most.append(len(home.active()))
        return home.is_over(*ids)

    home.play(done, dispatcher, watchdog)
    assert max(most) == 2


def test_users_take_turns_by_what_they_have_had(home: Home) -> None:
    """With one slot, a user who has had more time waits for one who has had less, however many tasks he has."""
    home.configure(slots={"max": 1})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    greedy = home.submit_all([home.document("sleep 0.05", user="greedy") for _ in range(4)])
    home.play(lambda: home.is_over(greedy[0]), dispatcher, watchdog)
    modest = home.submit("true", user="modest")
    home.play(lambda: home.is_over(modest, *greedy), dispatcher, watchdog)
    ended = sorted((home.task(one).finished_at, one) for one in (modest, *greedy))
    assert [one for _, one in ended].index(modest) <= 2


def test_locked_users_are_passed_over(home: Home) -> None:
    """A user whose lock somebody holds waits; the others start."""
    instance = home.open()
    lock = instance.locks.acquire("ann", "by-hand", timeout=0)
    assert lock is not None
    dispatcher = home.dispatcher()
    ann, bob = home.submit(user="ann"), home.submit(user="bob")
    dispatcher.run_once()
    assert statuses(home, ann, bob) == [Status.QUEUED, Status.CLAIMED]
    instance.locks.release("ann", lock.lock_id)
    dispatcher.run_once()
    assert statuses(home, ann) == [Status.CLAIMED]


def test_the_users_lock_is_the_first_to_be_taken_and_the_last_to_be_freed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held and shown when the run directory is made and until its end is written; each run has one lock."""
    seen: list[tuple[str, list[str | None]]] = []

    def look(what: str) -> None:
        shown = [name.removeprefix("user_") for name in os.listdir(home.paths.locks) if name.endswith(".lock")]
        held = [lock.user for lock in home.store.locks()]
        assert sorted(name.removesuffix(".lock") for name in shown) == sorted(map(str, held))
        seen.append((what, held))

    make, drop = rundir.create, LockFiles.drop

    def before_it_is_made(run_dir: str, *words: Any) -> None:  # noqa: ANN401 - handed on as they are
        look("made")
        make(run_dir, *words)

    monkeypatch.setattr(rundir, "create", before_it_is_made)
    watched = home.submit(user="ann")

    def before_it_goes(files: LockFiles, user: str | None, lock_id: str) -> None:
        assert home.meta(watched).ended
        look("freed")
        drop(files, user, lock_id)

    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    dispatcher.run_once()
    monkeypatch.setattr(LockFiles, "drop", before_it_goes)
    home.play(lambda: home.is_over(watched), None, watchdog)
    assert seen == [("made", ["ann"]), ("freed", ["ann"])]
    assert home.store.locks() == []


def test_a_foreign_lock_file_keeps_a_user_away(home: Home) -> None:
    """A lock file made by hand is honoured until it is removed, and never removed by us."""
    dispatcher = home.dispatcher()
    Path(home.paths.locks, "user_ann.lock").touch()
    ann, bob = home.submit(user="ann"), home.submit(user="bob")
    dispatcher.run_once()
    assert statuses(home, ann, bob) == [Status.QUEUED, Status.CLAIMED]
    assert home.store.attempts(ann) == []
    home.watchdog().run_once()
    Path(home.paths.locks, "user_ann.lock").unlink()
    dispatcher.run_once()
    assert statuses(home, ann) == [Status.CLAIMED]


def test_nobody_saves_up_behind_a_foreign_lock_file(home: Home) -> None:
    """Whoever was kept out comes back at the level of those who went on meanwhile."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    lock = Path(home.paths.locks, "user_bob.lock")
    lock.touch()
    ids = [home.submit(user="ann"), home.submit(user="ann"), home.submit(user="bob")]
    home.play(lambda: home.is_over(ids[0]), dispatcher, watchdog)
    home.store.db.run("UPDATE users SET standing = standing + 1000 WHERE name = 'ann'")
    home.operations().pause("all", by="eve")
    home.submit(user="ann")
    lock.unlink()
    dispatcher.run_once()
    standings: dict[str, float] = dict(home.store.db.rows("SELECT name, standing FROM users"))
    assert standings["bob"] == pytest.approx(standings["ann"], abs=1.0)


def test_the_removal_of_a_foreign_lock_file_wakes_the_daemon(home: Home) -> None:
    """Although nobody rings and the poll comes in an hour, the task starts when the file goes."""
    home.configure(**NO_POLLS)
    home.open()
    lock = Path(home.paths.locks, "user_ann.lock")
    lock.touch()
    home.up()
    task = home.submit(user="ann")
    stays(lambda: home.task(task).status is Status.QUEUED, "the lock file is honoured")
    lock.unlink()
    home.wait_over(task)


def test_a_foreign_file_that_comes_between_look_and_claim_wins(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is given back, the task waits, and that is not counted against it."""
    home.configure(limits={"start_attempts": 1})
    dispatcher = home.dispatcher()
    task = home.submit(user="ann")
    lock = Path(home.paths.locks, "user_ann.lock")
    lock.touch()
    # As it is when the file is made right after the look.
    monkeypatch.setattr(dispatcher.instance.locks, "foreign", set[str])
    dispatcher.run_once()
    assert home.task(task).status is Status.QUEUED
    assert [attempt.error for attempt in home.store.attempts(task)] == ["a foreign lock file is there"]
    lock.unlink()
    home.play(lambda: home.is_over(task), dispatcher, home.watchdog())
    assert home.task(task).status is Status.COMPLETED


def test_serialization_can_be_switched_off(home: Home) -> None:
    """For debugging, a user's tasks run side by side, and no user lock is shown."""
    home.configure(per_user_serialization={"enabled": False})
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    ids = [home.submit(LONG) for _ in range(3)]
    dispatcher.run_once()
    assert statuses(home, *ids) == [Status.CLAIMED] * 3
    assert os.listdir(home.paths.locks) == []
    finish_all(home)
    home.play(lambda: home.is_over(*ids), dispatcher, watchdog)


# ---------------------------------------------------------------------- pauses and times


@pytest.mark.parametrize("scope", ["all", "user:ann", "project:default"])
def test_what_is_paused_waits(home: Home, scope: str) -> None:
    """Nothing of a paused scope starts; what runs goes on; resuming starts it."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    running = home.submit(LONG, user="eve")
    dispatcher.run_once()
    home.operations().pause(scope, by="operator")
    task = home.submit(user="ann")
    dispatcher.run_once()
    assert statuses(home, task, running) == [Status.QUEUED, Status.CLAIMED]
    assert home.operations().resume(scope, by="operator")
    finish_all(home)
    home.play(lambda: home.is_over(task, running), dispatcher, watchdog)
    assert statuses(home, task, running) == [Status.COMPLETED] * 2


def test_a_task_starts_when_its_time_has_come(home: Home) -> None:
    """A daemon that polls once an hour starts a task at its `run_at`, not before and not an hour later."""
    home.configure(**NO_POLLS)
    home.up()
    due = int(time.time() * 1000) + 700
    task = home.submit(run_at=iso(due))
    [ended] = home.wait_over(task)
    assert ended.started_at is not None
    assert 0 <= ended.started_at - due < 20_000


def test_tasks_take_part_when_they_are_due(home: Home) -> None:
    """A pass before its time leaves a task alone and notes when to look again; the one after it starts it."""
    dispatcher = home.dispatcher()
    due = int(time.time() * 1000) + 300
    task = home.submit(run_at=iso(due))
    dispatcher.run_once()
    assert (home.task(task).status, dispatcher.next_due) == (Status.QUEUED, due)
    home.play(lambda: home.task(task).status is Status.CLAIMED, dispatcher, None)
    assert time.time() * 1000 >= due
    assert dispatcher.next_due is None


def test_a_changed_time_counts(home: Home) -> None:
    """A task for tomorrow that is changed to now starts with the ring."""
    home.configure(**NO_POLLS)
    home.up()
    task = home.submit(run_at="+1d")
    stays(lambda: home.task(task).status is Status.QUEUED, "it waits for its time")
    home.operations().change(task, 1, Changes(run_at=None), by="ann")
    home.wait_over(task)


# ---------------------------------------------------------------------- what cannot start


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"command": ["no-such-program"]}, "there is no program 'no-such-program'"),
        ({"agent": "gone"}, "the daemon knows no agent 'gone'"),
        ({"project": "gone"}, "which is not a directory"),
    ],
)
def test_what_cannot_be_launched_fails_with_a_sentence(home: Home, fields: dict[str, object], word: str) -> None:
    """It fails at once, says why, and frees its user."""
    settings = {"agents": {"gone": {"command": ["true"]}}, "projects": {"gone": {"path": str(home.path / "nowhere")}}}
    home.configure(**settings)
    document = home.document() | fields
    if "command" in fields:
        del document["prompt"]
    [task] = home.submit_all([document])
    if "agent" in fields:
        home.configure()
    dispatcher = home.dispatcher()
    dispatcher.run_once()
    failed = home.task(task)
    assert failed.status is Status.FAILED
    assert failed.outcome
    assert failed.outcome.reason == "cannot_launch"
    assert word in failed.outcome.error
    assert home.store.locks() == []
    assert os.listdir(home.paths.locks) == []
    assert home.store.past_locks(10)[0].evidence == {"proof": "never launched"}


def test_many_that_cannot_be_launched_do_not_hold_a_pass(home: Home) -> None:
    """A pass fails so many, no more, and says that there are others; between two passes signals are heard."""
    home.configure(slots={"max": 1}, projects={"gone": {"path": str(home.path / "nowhere")}})
    count = module.ROUNDS + 5
    ids = home.submit_all([home.document(project="gone") for _ in range(count)])
    dispatcher = home.dispatcher()
    dispatcher.run_once()
    assert dispatcher.has_more
    assert statuses(home, *ids).count(Status.FAILED) == module.ROUNDS
    dispatcher.run_once()
    assert not dispatcher.has_more
    assert statuses(home, *ids) == [Status.FAILED] * count


# ---------------------------------------------------------------------- intake and showing


def test_a_flood_of_files_is_taken_in_batches(home: Home) -> None:
    """A pass takes one batch, so that starting is never far behind; the rest waits for the next."""
    home.configure(spool={"batch": 3})
    dispatcher = home.dispatcher()
    for number in range(7):
        home.drop(f"{number}.json", user=f"user{number}")
        os.utime(Path(home.paths.spool, f"{number}.json"), (number, number))
    counts = []
    for _ in range(4):
        dispatcher.run_once()
        counts.append(len(home.tasks()))
    assert counts == [3, 6, 7, 7]
    assert [task.spec.user for task in home.tasks()] == [f"user{number}" for number in range(7)]


def test_files_that_a_dead_process_had_claimed_are_taken_in(home: Home) -> None:
    """What lies in the intake folder, from a submitter or daemon that died, becomes a task, before and during work."""
    dispatcher = home.dispatcher()
    for name in ("one.json", "two.json"):
        home.drop(name)
        assert dispatcher.admission.claim(name) is not None
        dispatcher = home.dispatcher() if name == "one.json" else dispatcher
    assert len(home.tasks()) == 1
    dispatcher.run_once()
    assert len(home.tasks()) == 2


def test_capacity_is_shown(home: Home) -> None:
    """capacity.json tells the slots, and who uses them, and is written when that changes."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    dispatcher.run_once()
    path = Path(home.paths.capacity)
    empty = {"slots": {"max": 4, "used": 0, "available": 4}, "by_project": {}, "by_user": {}}
    assert json.loads(path.read_text(encoding="utf-8")) == empty
    before = path.stat().st_ino
    dispatcher.run_once()
    assert path.stat().st_ino == before
    tasks = [home.submit(LONG, user="ann"), home.submit(LONG, user="bob")]
    dispatcher.run_once()
    shown = json.loads(path.read_text(encoding="utf-8"))
    assert shown == {
        "slots": {"max": 4, "used": 2, "available": 2},
        "by_project": {"default": 2},
        "by_user": {"ann": 1, "bob": 1},
    }
    finish_all(home)
    home.play(lambda: home.is_over(*tasks), dispatcher, watchdog)
    eventually(lambda: json.loads(path.read_text(encoding="utf-8")) == empty, "the slots are free again")
