"""locks and lock release: who holds what, and what it takes to free it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cli.running import Run, quarantined_task
from tests.support.instance import Home

from fairlead.base.errors import RefusedError
from fairlead.cli.commands import locks
from fairlead.desk.desk import Desk
from fairlead.desk.views import past_lock_view
from fairlead.queue.rights import master
from fairlead.queue.store import Lock, PastLock


def hold(home: Home, user: str) -> Lock:
    """A lock that this process holds."""
    held = home.open().locks.acquire(user, "hold-1", 0.0)
    assert held
    return held


def hold_under_an_old_name(home: Home, user: str) -> Lock:
    """A lock that this process has held since before the machine was renamed."""
    instance = home.open()
    here = instance.locks.acquire(user, "hold-1", 0.0)
    assert here
    instance.locks.release(user, here.lock_id)
    holder = replace(here.holder, host="elsewhere")
    now = instance.clock.wall_ms()
    held = instance.store.acquire(f"user:{user}", task_id="hold-1", holder=holder, now=now, lease=60.0)
    assert held
    return held


def dead_pid() -> int:
    """The pid of a process that was."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


# ---------------------------------------------------------------------- locks


def test_nobody_holds_a_lock(run: Run) -> None:
    """An empty table is a sentence; programs get empty lists."""
    run.home.open()
    assert run.lines("locks") == ["nobody holds a lock"]
    assert run.json("locks") == {"locks": [], "foreign": []}
    assert run.lines("locks", "--past") == ["no lock has been released yet"]
    assert run.json("locks", "--past") == []


def test_locks_of_runs_and_commands(run: Run) -> None:
    """Each with its state, what it is held for, by whom and since when."""
    task_id = run.home.submit("sleep 60", "ann")
    run.home.dispatcher().run_once()
    held = hold(run.home, "bob")
    header, ann, bob = run.lines("locks")
    assert header.split() == ["LOCK", "STATE", "FOR", "HOLDER", "SINCE"]
    assert ann.startswith(f"user:ann  held   {task_id}  pid ")
    assert bob.startswith("user:bob  held   a command ")
    assert f"pid {held.holder.pid} on {held.holder.host}" in bob
    first, second = run.json("locks")["locks"]
    assert (first["task_id"], first["kind"], second["kind"]) == (task_id, "run", "hold")
    assert second["acquired_by_pid"] == os.getpid()
    assert second["expires_at"].endswith("+00:00")


def test_quarantined_and_foreign_locks_are_explained(run: Run) -> None:
    """What nobody can free without a person is told on a line of its own."""
    run.home.open()
    held = hold(run.home, "ann")
    evidence = {"left": "\x1b[2J"}
    run.home.quarantine(held, evidence)
    foreign = Path(run.home.paths.locks, "user_bob.lock")
    foreign.write_text("4711\n", encoding="utf-8")
    *_, quarantined, other = run.lines("locks")
    assert quarantined.startswith("user:ann is quarantined: {'left': ")
    assert "\x1b" not in quarantined
    assert other == f"user:bob is locked by the foreign file {foreign}, made by hand, naming pid 4711"
    shown = {"user": "bob", "path": str(foreign), "kind": "by hand", "acquired_by_pid": 4711}
    shown["maker"] = "made by hand, naming pid 4711"
    assert run.json("locks")["foreign"] == [shown]


def test_released_locks_are_remembered(run: Run) -> None:
    """Newest first, with why and on what evidence; --limit says how many."""
    task_id = run.played()
    held = hold(run.home, "bob")
    run.home.open().locks.release("bob", held.lock_id, why="enough", evidence={"by": "me"})
    _, newest, oldest = run.lines("locks", "--past")
    assert newest.startswith("user:bob  20")
    assert newest.split("  ")[-1] == "by: me"
    assert oldest.endswith(f"task {task_id} completed  its supervisor wrote the end down")
    [only] = run.json("locks", "--past", "--limit", "1")
    assert (only["name"], only["why"], only["evidence"]) == ("user:bob", "enough", {"by": "me"})
    assert only["released_at"] >= only["acquired_at"]


# ---------------------------------------------------------------------- lock release


def test_a_free_lock_is_free(run: Run) -> None:
    """Releasing what nobody holds is no error."""
    assert run.lines("lock", "release", "ann") == ["the lock of ann is free"]
    assert run.json("lock", "release", "ann") == {"released": "user:ann", "evidence": {"proof": "nobody holds it"}}


def test_a_running_task_keeps_its_lock(run: Run) -> None:
    """Not even by force: the task has to be cancelled."""
    task_id = run.home.submit("sleep 60", "ann")
    run.home.dispatcher().run_once()
    for words in ((), ("--force",)):
        wrong = run.refusal("lock", "release", "ann", *words, code=5)
        assert wrong == f"task {task_id} runs under it: `fairlead cancel {task_id}` ends it and frees it."


def test_a_living_command_keeps_its_lock(run: Run) -> None:
    """Not even by force: two would work in one tree."""
    hold(run.home, "ann")
    for words in ((), ("--force",)):
        wrong = run.refusal("lock", "release", "ann", *words, code=5)
        assert wrong.startswith(f"a command that was started under it is alive (pid {os.getpid()}, or what it started)")
    assert run.home.store.lock("user:ann")


def test_the_lock_of_a_dead_command_is_freed_on_evidence(run: Run) -> None:
    """Its holder is gone, with all that it started: no force is needed."""
    instance = run.home.open()
    holder = replace(hold(run.home, "bob").holder, pid=dead_pid())
    instance.store.acquire("user:ann", task_id="hold-1", holder=holder, now=instance.clock.wall_ms(), lease=60.0)
    run("lock", "release", "ann")
    assert run.home.store.lock("user:ann") is None
    assert run.home.store.past_locks(1)[0].evidence["proof"] == "its process and what it started are gone"


def test_no_word_frees_the_lock_of_a_living_command(run: Run) -> None:
    """Nor does another name of the machine make it somebody who cannot be looked at."""
    lock = hold_under_an_old_name(run.home, "ann")
    for words in ((), ("--force",)):
        wrong = run.refusal("lock", "release", "ann", *words, code=5)
        assert wrong.startswith(f"a command that was started under it is alive (pid {lock.holder.pid}")
    assert run.home.store.lock("user:ann") == lock


def test_a_quarantined_lock_needs_force(run: Run) -> None:
    """A person's word is written down as the evidence."""
    run.home.open()
    task_id = run.played(user="ann")
    held = hold_under_an_old_name(run.home, "ann")
    run.home.quarantine(held, {"task": task_id})
    assert "make sure, then say --force" in run.refusal("lock", "release", "ann", code=5)
    assert run.lines("lock", "release", "ann", "--force") == ["the lock of ann is free"]
    assert run.home.store.past_locks(1)[0].evidence["was"] == "quarantined"


def test_the_lock_of_a_single_task_is_released_by_its_name(run: Run) -> None:
    """Without serialization a task has a lock of its own; `why` names the command that frees it."""
    task_id = quarantined_task(run.home)
    run("retry", task_id)
    command = f"lock release task:{task_id}"
    assert f"`fairlead {command} --force`" in run("why", task_id).out
    assert "make sure, then say --force" in run.refusal(*command.split(), code=5)
    assert run.lines(*command.split(), "--force") == [f"the lock of task:{task_id} is free"]
    assert run.json(*command.split()) == {"released": f"task:{task_id}", "evidence": {"proof": "nobody holds it"}}
    assert run.home.store.past_locks(1)[0].evidence["was"] == "quarantined"
    assert "quarantined" not in run("why", task_id).out


def test_a_foreign_file_needs_force_and_is_kept_aside(run: Run) -> None:
    """Whoever made it finds it again."""
    run.home.open()
    foreign = Path(run.home.paths.locks, "user_ann.lock")
    foreign.write_text('{"host": "elsewhere"}', encoding="utf-8")
    assert "is not Fairlead's" in run.refusal("lock", "release", "ann", code=5)
    aside = run.json("lock", "release", "ann", "--force")["evidence"]["aside"]
    assert not foreign.exists()
    assert Path(f"{aside}.lock").read_text(encoding="utf-8") == '{"host": "elsewhere"}'


def test_a_lock_that_was_just_taken_is_not_freed(run: Run) -> None:
    """Between the look at a foreign file and its removal somebody may have taken the row."""
    instance = run.home.open()
    Path(run.home.paths.locks, "user_ann.lock").touch()
    holder = replace(hold(run.home, "carl").holder, host="elsewhere")
    instance.store.acquire("user:ann", task_id="hold-1", holder=holder, now=instance.clock.wall_ms(), lease=60.0)
    with pytest.raises(RefusedError, match="the lock of ann has just been taken; look at `fairlead locks`"):
        Desk(instance, master(os.getuid()))._free_file("ann", force=True)


def test_wrong_words_are_refused(run: Run) -> None:
    """Neither a way nor a user can be made up."""
    assert "hold|release" in run.refusal("lock", code=2)
    assert "invalid choice: 'take'" in run.refusal("lock", "take", "ann", code=2)
    assert "required: USER" in run.refusal("lock", "release", code=2)
    assert "cannot be a user" in run.refusal("lock", "release", "../x", code=2)
    assert "is not a task id" in run.refusal("lock", "release", "task:../x", code=2)


@pytest.mark.parametrize(
    ("why", "evidence", "said"),
    [
        ("t1 lost: reboot", {"proof": "another boot"}, ("task t1 was lost: the machine was started anew", "since")),
        ("t1 cancelled: cancelled", {"proof": "never launched"}, ("task t1 was cancelled", "it was never started")),
        ("t1 failed: timeout", {"written_by": "supervisor"}, ("task t1 failed: its time was up", "wrote the end")),
        ("its holder died", {"proof": "its process is gone", "pid": 7}, ("its holder died", "is gone (pid 7)")),
        ("forced by ann", {"by": "ann"}, ("forced by ann", "by: ann")),
    ],
    ids=str,
)
def test_past_locks_are_told_in_sentences(why: str, evidence: dict[str, Any], said: tuple[str, str]) -> None:
    """Words for programs stay in the answer for programs."""
    past = PastLock(
        name="user:ann",
        lock_id="l1",
        token=1,
        task_id="t1",
        kind="run",
        acquired_at=0,
        released_at=1,
        why=why,
        evidence=evidence,
    )
    *_, reason, proof = locks._past_row(past_lock_view(past, whole=True))
    assert reason == said[0]
    assert said[1] in str(proof)
