"""status, list, capacity, why: what is there, for people and for programs."""

from pathlib import Path

import pytest
from tests.cli.running import Run, shown

from fairlead.queue.states import Status

EVIL = "\x1b[2J\x07\u202eevil\u2028é"
SPELLED = "\\x1b[2J\\x07\\u202eevil\\u2028é"


# ---------------------------------------------------------------------- status


def test_status_of_an_idle_instance(run: Run) -> None:
    """Services that do not run come first, then slots, what waits, what has ended."""
    run.home.open().apply_shares()
    assert run.lines("status") == [
        "the daemon does not run; `fairlead up` starts both services",
        "the watchdog does not run; `fairlead up` starts both services",
        "slots:    0 of 4 used",
        "pending:  0",
        "finished: none yet",
    ]


def test_status_tells_what_waits_and_who_runs(run: Run) -> None:
    """Waiting tasks by priority, tasks that are not due, pauses, and every lock with its task."""
    running = run.home.submit("sleep 60", "ann")
    run.home.dispatcher().run_once()
    run.home.submit("true", "bob", priority="high")
    run.home.submit("true", "bob", priority="low", run_at="+1h")
    run("pause", "project:website")
    lines = run.lines("status")
    assert lines[2:5] == [
        "paused: project:website",
        "slots:    1 of 4 used",
        "pending:  2 (1 high, 1 low, 1 not due yet)",
    ]
    assert lines[-1].startswith(f"ann runs {running} since 20")
    assert lines[-1].endswith("Z")


def test_status_tells_of_commands_that_hold_a_lock(run: Run) -> None:
    """A lock that no task holds is told with the command's pid; a quarantined one is shouted."""
    instance = run.home.open()
    held, kept = (instance.locks.acquire(user, "hold-1", 0.0) for user in ("ann", "bob"))
    assert held
    assert kept
    run.home.quarantine(kept, {})
    lines = run.lines("status")
    assert lines[-2].startswith(f"ann is held by a command, pid {held.holder.pid}, since 20")
    assert lines[-1].endswith("Z (QUARANTINED)")


def test_status_for_programs(run: Run) -> None:
    """The same as one object, with both services' state."""
    run.home.submit(priority="critical")
    data = run.json("status")
    assert data["pending"] == {"critical": 1, "high": 0, "medium": 0, "low": 0, "total": 1, "not_due": 0}
    assert set(data) == {
        "slots",
        "pending",
        "active",
        "user_locks",
        "paused",
        "finished",
        "no_room",
        "daemon",
        "watchdog",
    }
    assert (data["daemon"], data["watchdog"]) == (False, False)


# ---------------------------------------------------------------------- list


def test_list_shows_what_waits_or_runs(run: Run) -> None:
    """Newest first, under names; finished tasks only with --all."""
    done = run.played(title="first")
    waits = run.home.submit(title="second", user="bob", priority="high")
    assert run.lines("list") == [
        "ID                             STATUS  USER  PROJECT  PRIORITY  TITLE",
        f"{waits}  queued  bob   default  high      second",
    ]
    assert [line.split()[0] for line in run.lines("list", "--all")[1:]] == [waits, done]


def test_list_chooses(run: Run) -> None:
    """By status (more than one), user, project, and number."""
    done, waits = run.played(user="ann"), run.home.submit(user="bob")

    def ids(*words: str) -> list[str]:
        return [task["id"] for task in run.json("list", *words)]

    assert ids("--status", "completed") == [done]
    assert ids("--status", "completed", "--status", "queued") == [waits, done]
    assert ids("--all", "--user", "ann") == [done]
    assert ids("--all", "--project", "default", "--limit", "1") == [waits]
    assert ids("--project", "website") == []


def test_an_empty_list_is_a_sentence(run: Run) -> None:
    """People are told that there is nothing, and where the rest is; programs get an empty list."""
    run.home.open()
    assert run.lines("list") == ["nothing waits or runs; `fairlead list --all` shows finished tasks"]
    assert run.lines("list", "--all") == ["there is no such task"]
    assert run.lines("list", "--user", "ann") == ["there is no such task"]
    assert run.json("list") == []


def test_list_for_programs(run: Run) -> None:
    """One record per task, as `show` has it, but without attempts and events."""
    task_id = run.home.submit(payload={"a": 1})
    [record] = run.json("list")
    assert (record["id"], record["status"], record["payload"]) == (task_id, "queued", {"a": 1})
    assert not {"attempts", "events"} & set(record)


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "²"])
def test_a_limit_is_a_number_of_things(run: Run, number: str) -> None:
    """Zero, negative and other limits are refused."""
    assert "argument --limit: " in run.refusal("list", f"--limit={number}", code=2)


def test_an_unknown_status_is_refused_with_the_known_ones(run: Run) -> None:
    """The statuses are told as one types them."""
    wrong = run.refusal("list", "--status", "finished", code=2)
    assert "queued" in wrong
    assert "<" not in wrong


def test_titles_cannot_command_a_terminal(run: Run) -> None:
    """Control characters, direction marks and line separators in a title are spelled out."""
    task_id = run.home.submit(title=EVIL.replace("\u2028", ""))
    spelled = SPELLED.replace("\\u2028", "")
    for words in (("list",), ("show", task_id), ("events",)):
        seen = shown(run.home, *words, NO_COLOR="1")
        assert spelled in seen
        assert "\x1b" not in seen


# ---------------------------------------------------------------------- capacity


def test_capacity(run: Run) -> None:
    """Slots, and who uses them, by user and by project; as JSON what capacity.json has."""
    run.home.submit("sleep 60", "ann")
    run.home.dispatcher().run_once()
    assert run.lines("capacity") == [
        "1 of 4 slots used, 3 free",
        "USER  RUNNING",
        "ann   1",
        "PROJECT  RUNNING",
        "default  1",
    ]
    data = run.json("capacity")
    assert data == {
        "slots": {"max": 4, "used": 1, "available": 3},
        "by_project": {"default": 1},
        "by_user": {"ann": 1},
    }


def test_capacity_of_an_idle_instance_is_one_line(run: Run) -> None:
    """Without users there are no tables."""
    run.home.open().apply_shares()
    assert run.lines("capacity") == ["0 of 4 slots used, 4 free"]


# ---------------------------------------------------------------------- why


def test_why_gives_every_reason(run: Run) -> None:
    """The most decisive reason comes first, the others below it."""
    task_id = run.home.submit(run_at="+1h")
    run("pause", "--reason", "a move")
    first, *others = run.lines("why", task_id)
    assert first.startswith(f"{task_id} (queued): the daemon does not run")
    assert any("it is due in" in line for line in others)
    assert all(line.startswith("  also: ") for line in others)


def test_why_for_programs(run: Run) -> None:
    """Reasons are words for programs and sentences for people."""
    task_id = run.home.submit(run_at="+1h")
    answer = run.json("why", task_id)
    assert (answer["task_id"], answer["status"]) == (task_id, "queued")
    assert [one["reason"] for one in answer["obstacles"]] == ["no_daemon", "not_due"]
    assert answer["summary"] == answer["obstacles"][0]["detail"]


def test_why_of_a_finished_task_tells_its_end(run: Run) -> None:
    """A failed task says how it ended, and how to run it again."""
    task_id = run.played("exit 3")
    assert f"exit code 3; `fairlead retry {task_id}` runs it again" in run("why", task_id).out


# ---------------------------------------------------------------------- ids


def test_ids_may_be_shortened(run: Run) -> None:
    """A beginning, or a beginning of the random tail, means the task; the whole id always does."""
    task_id = run.home.submit()
    tail = task_id.rpartition("-")[2]
    for part in (task_id, task_id[:-2], tail, tail[:4], "20"):
        assert run.json("show", part)["id"] == task_id


def test_an_id_that_means_several_tasks_is_refused(run: Run) -> None:
    """The error names them, and exits with 2."""
    first, second = run.home.submit(), run.home.submit()
    wrong = run.refusal("show", "20", code=2)
    assert first in wrong
    assert second in wrong
    assert "write more of the id" in wrong


@pytest.mark.parametrize("wrong", ["nosuch", "../../etc/passwd", "%", "_", "a b"])
def test_an_id_that_means_nothing_is_refused(run: Run, wrong: str) -> None:
    """There is no such task: exit code 4, and where to find the known ones."""
    run.home.submit()
    assert (
        run.refusal("show", wrong, code=4) == f"there is no task {wrong}; `fairlead list --all` shows the known ones."
    )


def test_an_empty_id_is_no_id(run: Run) -> None:
    """A variable that was empty does not mean all tasks."""
    run.home.submit()
    assert run.refusal("cancel", "", code=2).startswith("an empty word is no id")


def test_a_task_that_the_store_has_forgotten_is_found_in_the_archive(run: Run) -> None:
    """Commands answer for archived tasks, too."""
    task_id = run.played("exit 3")
    run.home.store.forget(1 << 60, 100)
    assert run.json("show", task_id[-10:-4])["status"] == "failed"
    assert run.json("why", task_id)["status"] == "failed"
    assert run.refusal("cancel", task_id, code=5).startswith(f"task {task_id} cannot be cancelled: it has ended")
    assert Path(run.json("show", task_id)["run_dir"]).is_dir()
    assert Status(run.json("wait", task_id, code=1)[0]["status"]) is Status.FAILED
