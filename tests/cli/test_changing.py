"""cancel, retry, requeue, change: what people may ask of a task."""

import os
from pathlib import Path

import pytest
from tests.cli.running import Run, process, wait_waiting

from fairlead.cli.commands import requeue
from fairlead.queue.states import Status

# ---------------------------------------------------------------------- cancel


def test_cancelling_waiting_tasks(run: Run) -> None:
    """Each is told, and gone from the queue."""
    first, second = run.home.submit(), run.home.submit()
    assert run.lines("cancel", first, second) == [f"{first} is cancelled", f"{second} is cancelled"]
    assert {run.home.task(one).status for one in (first, second)} == {Status.CANCELLED}


def test_a_running_task_is_asked_to_stop(run: Run) -> None:
    """It ends a moment later, and its record says who wanted it."""
    run.home.up()
    task_id = run.home.submit("sleep 60")
    run.home.ring("daemon")
    run.home.wait_status(task_id, Status.RUNNING)
    [answer] = run.json("cancel", task_id)
    assert (answer["id"], answer["status"]) == (task_id, "running")
    assert answer["cancel"]
    assert run.home.wait_over(task_id)[0].status is Status.CANCELLED


def test_a_running_task_is_told_so(run: Run) -> None:
    """People read that it was asked, not that it has ended."""
    task_id = run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    assert run.lines("cancel", task_id) == [f"{task_id} was asked to stop"]


def test_a_refusal_does_not_stop_the_others(run: Run) -> None:
    """What can be cancelled is, and told; the rest is refused with exit code 5 at the end."""
    done, waits = run.played(), run.home.submit()
    said = run("cancel", done, waits, code=5)
    assert said.out == f"{waits} is cancelled\n"
    assert said.err.startswith(f"fairlead: task {done} cannot be cancelled: it has ended already (completed).")


def test_somebody_without_a_name_is_known_by_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no entry among the users is written down by uid."""
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    task_id = run.home.submit()
    run("cancel", task_id)
    assert run.json("show", task_id)["events"][-1]["by"] == "uid-3999999999"


def test_a_wrong_id_stops_all(run: Run) -> None:
    """Nothing is cancelled if one of the ids means nothing."""
    waits = run.home.submit()
    assert "there is no task nosuch" in run.refusal("cancel", waits, "nosuch", code=4)
    assert run.home.task(waits).status is Status.QUEUED


# ---------------------------------------------------------------------- retry


def test_retrying(run: Run) -> None:
    """Failed and cancelled tasks are queued again, with their attempts on record."""
    failed, cancelled = run.played("exit 1"), run.home.submit()
    run("cancel", cancelled)
    assert run.lines("retry", failed, cancelled) == [f"{failed} is queued again", f"{cancelled} is queued again"]
    assert run.home.task(failed).attempt == 1


def test_a_completed_task_is_never_run_again(run: Run) -> None:
    """Retrying it is refused with exit code 5, for programs as well."""
    done = run.played()
    assert f"task {done} is completed" in run.refusal("retry", done, code=5)
    said = run("retry", done, "--json", code=5)
    assert said.out == "[]\n"


# ---------------------------------------------------------------------- requeue


def test_requeueing_what_waits_or_has_failed(run: Run) -> None:
    """A failed task is queued again; one that waits stays where it is."""
    failed = run.played("exit 1")
    assert run.lines("requeue", failed) == [f"{failed} is queued again"]
    assert run.lines("requeue", failed) == [f"{failed} is queued"]
    assert run.json("requeue", failed) == {"id": failed, "status": "queued"}


def test_requeueing_a_completed_task_is_refused(run: Run) -> None:
    """It is finished for good."""
    assert "is completed" in run.refusal("requeue", run.played(), code=5)


def test_a_living_run_is_left_alone_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a watchdog to say what can be seen: its supervisor is alive."""
    monkeypatch.setattr(requeue, "PATIENCE", 3600.0)
    task_id = run.home.submit("sleep 60")
    run.home.play(lambda: bool(run.home.meta(task_id).pid), run.home.dispatcher(), run.home.watchdog())
    wrong = run.refusal("requeue", task_id, code=5)
    assert wrong.startswith(f"task {task_id} is left alone: it is ")
    assert wrong.endswith(f"; `fairlead cancel {task_id}` ends it, then retry it.")
    assert run.home.task(task_id).status in (Status.CLAIMED, Status.RUNNING)


def test_a_run_whose_supervisor_died_is_brought_back(run: Run) -> None:
    """The watchdog looks, finds it lost, and it is queued again."""
    task_id = run.home.submit("sleep 60")
    dispatcher = run.home.dispatcher()
    run.home.play(lambda: bool(run.home.meta(task_id).pid), dispatcher, run.home.watchdog())
    os.kill(run.home.supervisor_of(task_id).pid, 9)
    run.home.configure(intervals={"watch": 3600.0})
    with process(run.home, "requeue", task_id) as one:
        assert one.stderr
        assert "no watchdog runs for" in one.stderr.readline()
        wait_waiting(run.home, "requeue", one)
        run.home.start("watchdog")
        out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (0, f"{task_id} is queued again\n")


def test_what_nobody_can_prove_is_left_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a watchdog nothing is found out, and nothing is done."""
    monkeypatch.setattr(requeue, "PATIENCE", 0.01)
    task_id = run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    run.home.supervisor_of(task_id)
    Path(run.home.run_dir(run.home.task(task_id)), "meta.json").write_text("{", encoding="utf-8")
    said = run("requeue", task_id, code=5)
    assert "the watchdog does not run" in said.err
    assert f"task {task_id} is left alone" in said.err


# ---------------------------------------------------------------------- change


def test_changing_a_waiting_task(run: Run) -> None:
    """Priority, time and title change; the version grows."""
    task_id = run.home.submit()
    assert run.lines("change", task_id, "--priority", "high") == [f"{task_id} is changed; it has version 2 now"]
    changed = run.json("change", task_id, "--run-at", "2030-01-01T00:00:00Z", "--title", "New", "--priority", "10")
    assert changed == {
        "id": task_id,
        "version": 3,
        "priority": "low",
        "run_at": "2030-01-01T00:00:00.000+00:00",
        "title": "New",
    }
    assert run.json("change", task_id, "--run-at", "now")["run_at"] is None


def test_what_is_not_said_is_not_changed(run: Run) -> None:
    """A new title leaves priority and time as they are."""
    task_id = run.home.submit(priority="low", run_at="2030-01-01T00:00:00Z")
    changed = run.json("change", task_id, "--title", "New")
    assert (changed["priority"], changed["run_at"]) == ("low", "2030-01-01T00:00:00.000+00:00")


def test_a_time_without_a_zone_is_noted(run: Run) -> None:
    """The note says how it was read."""
    task_id = run.home.submit()
    assert "names no time zone" in run("change", task_id, "--run-at", "2030-01-01 10:00").err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ((), "say what to change: --priority, --run-at or --title."),
        (("--priority", "hgih"), "priority: 'hgih' is not a priority (did you mean 'high'?)"),
        (("--priority", "11"), "priority: 11 is not a priority"),
        (("--run-at", "noon"), "run_at: 'noon' is not a time"),
        (("--title", "two\nlines"), "title: must be one line"),
        (("--title", "x" * 201), "title: has 201 characters"),
        (("--version", "x", "--title", "y"), "argument --version: 'x' is not a whole number"),
    ],
    ids=str,
)
def test_wrong_changes_are_refused(run: Run, words: tuple[str, ...], wrong: str) -> None:
    """The same rules as in a task file."""
    task_id = run.home.submit()
    assert run.refusal("change", task_id, *words, code=2).startswith(wrong)
    assert run.home.task(task_id).version == 1


def test_a_stale_version_is_refused(run: Run) -> None:
    """--version changes only the task that somebody has read."""
    task_id = run.home.submit()
    run("change", task_id, "--title", "first", "--version", "1")
    assert "version 2" in run.refusal("change", task_id, "--title", "second", "--version", "1", code=5)
    assert "version 2" in run.refusal("change", task_id, "--title", "second", "--version", "0", code=5)


def test_an_operators_task_is_express_while_it_is_critical(run: Run) -> None:
    """The settings say whose critical tasks go before everybody's, for a change as for a submission."""
    run.home.configure(operators=["olga"])
    task_id = run.home.submit(user="olga")
    for priority in ("critical", "low"):
        run("change", task_id, "--priority", priority)
        [lane] = run.home.store.candidate("olga").lanes
        assert lane.heads[0].express == (priority == "critical")


def test_only_waiting_tasks_can_be_changed(run: Run) -> None:
    """A finished task says so."""
    task_id = run.played()
    wrong = run.refusal("change", task_id, "--title", "x", code=5)
    assert wrong == f"task {task_id} is completed: only a task that waits can be changed."
