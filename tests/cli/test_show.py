"""show: everything about one task."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.running import Run
from tests.proof.processes import kill
from tests.support.patience import eventually

from fairlead.base.identity import this_process
from fairlead.cli.usage import usage_words
from fairlead.conductor.meta import Supervisor, write_meta
from fairlead.desk.usage import living_supervisor, usage_of
from fairlead.queue.archive import Archive
from fairlead.queue.states import Status
from fairlead.queue.store import Ended
from fairlead.queue.task import Outcome


def test_show_of_a_waiting_task(run: Run) -> None:
    """What was asked for, and nothing that has not happened yet."""
    task_id = run.home.submit(
        "echo one\necho two\n",
        "ann",
        title="Two words",
        priority="high",
        run_at="2030-01-01T00:00:00Z",
        payload={"a": [1]},
    )
    page = run("show", task_id).out
    fields, prompt, events = page.rstrip("\n").split("\n\n")
    assert dict(line.split(":", 1) for line in fields.splitlines()).keys() == {
        *("id", "title", "status", "user", "project", "agent", "priority", "payload", "created", "not before", "from"),
        "directory",
    }
    assert f"directory:   {run.home.path}" in fields
    assert "not before:  2030-01-01T00:00:00Z" in fields
    assert 'payload:     {"a": [1]}' in fields
    assert prompt == "prompt:\n  echo one\n  echo two"
    assert re.fullmatch(r"events:\n  20\S+Z  queued         high priority", events)


def test_show_of_a_failed_task(run: Run) -> None:
    """How it ended, its last words, every attempt, and what happened."""
    task_id = run.home.submit(command=["sh", "-c", "echo sorry >&2; exit 3"], action="test")
    run.home.play(lambda: run.home.is_over(task_id), run.home.dispatcher(), run.home.watchdog())
    page = run("show", task_id).out
    assert re.search(r"^status: +failed$", page, re.MULTILINE)
    assert re.search(r"^error: +the agent ended with exit code 3$", page, re.MULTILINE)
    assert re.search(r"^action: +test$", page, re.MULTILINE)
    assert re.search(r"^command: +sh -c 'echo sorry >&2; exit 3'$", page, re.MULTILINE)
    assert re.search(r"^took: +\S+m?s$", page, re.MULTILINE)
    assert "last words:\n  sorry\n" in page
    assert re.search(r"^  1        failed  20\S+Z  20\S+Z  3     the agent ended with exit code 3$", page, re.MULTILINE)
    assert re.search(r"^  20\S+Z  failed         the agent ended with exit code 3 \(\S+\)$", page, re.MULTILINE)


def test_show_of_a_task_that_was_asked_to_stop(run: Run) -> None:
    """As long as it runs, it is told who wants it to stop; its attempt is running."""
    task_id = run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    run("cancel", task_id)
    page = run("show", task_id).out
    assert re.search(r"^status: +(claimed|running), \S+ asked it to stop$", page, re.MULTILINE)
    assert re.search(r"^  1        running$", page, re.MULTILINE)


def test_show_of_what_an_agent_reported(run: Run) -> None:
    """Its result and its artifacts are part of the page."""
    script = """echo x > out.txt; printf '{"cost": 2.5, "result": {"tests": 12}}' > "$FAIRLEAD_RESULT" """
    task_id = run.played(script, artifacts=["out.txt"])
    record = run.json("show", task_id)
    page = run("show", task_id).out
    assert record["status"] == "completed", record
    assert "artifacts:" in page
    assert "out.txt" in page
    assert "result:" in page


def test_show_for_programs(run: Run) -> None:
    """The whole record: spec, outcome, attempts, events, and where its files are."""
    task_id = run.played("echo hi")
    record = run.json("show", task_id)
    assert (record["id"], record["status"], record["exit_code"]) == (task_id, "completed", 0)
    assert [event["event"] for event in record["events"]] == ["queued", "claimed", "started", "completed"]
    assert [attempt["number"] for attempt in record["attempts"]] == [1]
    assert record["run_dir"].endswith(f"/finished/{task_id}.1")


def test_a_long_record_has_its_end(run: Run) -> None:
    """However much has happened to a task, both the record and the archive tell how it ended."""
    task_id = run.home.submit()
    late = Ended(task_id=task_id, token=7, outcome=Outcome(status=Status.LOST, reason="late"))
    run.home.store.finish([late] * 1200, now=1)
    run("cancel", task_id)
    archived = Archive(run.home.paths.archive).read(task_id)
    assert archived
    for record in (run.json("show", task_id), archived):
        assert len(record["events"]) == 1202
        assert record["events"][-1]["event"] == "cancelled"


def test_output_of_an_agent_cannot_command_a_terminal(run: Run) -> None:
    """Last words and prompts are spelled out."""
    task_id = run.played("printf 'a\\033[2Jb' >&2; exit 1 # \x1b[31m")
    page = run("show", task_id).out
    assert "a\\x1b[2Jb" in page
    assert "# \\x1b[31m" in page
    assert "\x1b" not in page


def test_show_of_a_running_task_says_what_it_uses(run: Run) -> None:
    """Its processes, their memory and CPU time, those that have ended included; one that waits uses nothing."""
    run.home.configure(slots={"max": 1})
    ready = Path(run.home.work, "ready")
    script = f"i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo > {ready}; sleep 60 & sleep 60"
    task_id, waits = run.home.submit(f"sh -c '{script}'; true"), run.home.submit()
    run.home.dispatcher().run_once()
    eventually(ready.exists, "the agent is at work")
    usage = eventually(lambda: (now := run.json("show", task_id)["usage"]) and now["processes"] > 2 and now, "it forks")
    assert usage["memory_bytes"] > 1 << 16
    assert 0 < usage["cpu_seconds"] < 60
    line = r"^uses: +\d processes, \d+\.\d MiB memory, \S+s CPU time$"
    assert re.search(line, run("show", task_id).out, re.MULTILINE)
    assert run.json("show", waits)["usage"] is None
    assert "uses:" not in run("show", waits).out


def test_a_supervisor_that_is_gone_uses_nothing(run: Run) -> None:
    """Nor does one whose pid has another owner by now."""
    task_id = run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    supervisor = run.home.supervisor_of(task_id)
    mine = this_process()
    assert usage_of(Supervisor(mine.pid, mine.start + 1)) is None
    kill(supervisor)
    # The signal is sent; the kernel ends the process a moment later.
    eventually(lambda: usage_of(Supervisor(supervisor.pid, supervisor.start)) is None, "it does not die")
    assert run.json("show", task_id)["usage"] is None
    assert usage_words(None) == ""


def test_what_was_used_before_is_not_this_runs() -> None:
    """A supervisor may have looked after somebody else's run: what that has used is left out."""
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"], check=True)
    used = os.times()
    before = used.children_user + used.children_system
    for used_before, least, most in ((0.0, 0.25, 1e9), (before, 0.0, 0.1)):
        usage = usage_of(Supervisor(*this_process(), used_before))
        assert usage
        assert least <= usage["cpu_seconds"] <= most


def test_a_supervisor_that_looks_after_another_run_uses_nothing_for_this_one(run: Run) -> None:
    """It is alive, and has nothing to do with the task any more."""
    task_id = run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    run.home.beats(task_id)
    os.kill(run.home.supervisor_of(task_id).pid, signal.SIGSTOP)
    meta = run.home.meta(task_id)
    assert living_supervisor(run.home.paths, run.home.task(task_id)) == meta.supervisor
    meta.lock_id = "another"
    write_meta(run.home.run_dir(run.home.task(task_id)), meta, synced=False)
    assert living_supervisor(run.home.paths, run.home.task(task_id)) is None


def test_wrong_settings_hide_the_directory_alone(run: Run) -> None:
    """Everything else about a task is shown, whatever is wrong with the settings."""
    task_id = run.home.submit()
    Path(run.home.paths.config_file).write_text("slots: many\n", encoding="utf-8")
    shown = run.json("show", task_id)
    assert (shown["id"], shown["directory"]) == (task_id, None)
