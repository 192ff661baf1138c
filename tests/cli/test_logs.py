"""logs: what an agent wrote."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.cli.running import Run, process, shown, terminal, wait_waiting
from tests.support.instance import FAIRLEAD, ROOT
from tests.support.patience import eventually

from fairlead.queue.states import Status

BOTH = "printf 'out\\n'; printf 'err\\n' >&2"


def test_logs_keep_the_two_streams_apart(run: Run) -> None:
    """What went to standard output comes from standard output, and so for standard error."""
    task_id = run.played(BOTH)
    for words, out, err in (
        ((), "out\n", "err\n"),
        (("--stdout",), "out\n", ""),
        (("--stderr",), "", "err\n"),
        (("--stdout", "--stderr"), "out\n", "err\n"),
    ):
        done = run.home.cli("logs", task_id, *words)
        assert (done.stdout, done.stderr) == (out, err)


def test_logs_for_programs(run: Run) -> None:
    """One object per piece, with its stream."""
    task_id = run.played(BOTH)
    said = run("logs", task_id, "--json").out.splitlines()
    assert [json.loads(line) for line in said] == [
        {"stream": "stdout", "text": "out\n"},
        {"stream": "stderr", "text": "err\n"},
    ]


def test_bytes_are_as_they_were_in_a_pipe(run: Run) -> None:
    """Nothing is changed on the way into a file: no escapes, no decoding."""
    task_id = run.played(r"printf 'a\033[2J\377\r\n'")
    done = subprocess.run(
        [*FAIRLEAD, "logs", task_id], cwd=ROOT, env=run.home.environ, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"a\x1b[2J\xff\r\n"


def test_a_terminal_sees_what_it_would_have_obeyed(run: Run) -> None:
    """Control characters are spelled out on a terminal; letters are not cut in two where pieces meet."""
    task_id = run.played(r"printf 'a\033[2J'; head -c 65530 /dev/zero | tr '\0' x; printf 'é\n'")
    seen = shown(run.home, "logs", task_id)
    assert seen.startswith("a\\x1b[2Jxxx")
    assert seen.endswith("xé\n")


def test_earlier_attempts_can_be_read(run: Run) -> None:
    """--attempt chooses; without it the last one is meant."""
    task_id = run.home.submit('echo "$FAIRLEAD_ATTEMPT"; exit 1')
    dispatcher, watchdog = run.home.dispatcher(), run.home.watchdog()
    run.home.play(lambda: run.home.is_over(task_id), dispatcher, watchdog)
    first = run.home.cli("logs", task_id).stdout
    run("retry", task_id)
    run.home.play(lambda: run.home.is_over(task_id), dispatcher, watchdog)
    assert run.home.cli("logs", task_id, "--attempt", "1").stdout == first
    assert run.home.cli("logs", task_id).stdout == run.home.cli("logs", task_id, "--attempt", "2").stdout
    wrong = run.refusal("logs", task_id, "--attempt", "3", code=4)
    assert wrong == f"task {task_id} is failed and has no output of attempt 3."
    assert "argument --attempt: " in run.refusal("logs", task_id, "--attempt", "0", code=2)


def test_a_task_that_waits_has_no_output_yet(run: Run) -> None:
    """The error says how to wait for it."""
    task_id = run.home.submit()
    wrong = run.refusal("logs", task_id, code=4)
    assert wrong == f"task {task_id} is queued and has no output yet; `fairlead logs -f {task_id}` waits for it."


def test_a_run_directory_without_the_file_has_nothing_to_show(run: Run) -> None:
    """A stream whose file is missing is silent."""
    task_id = run.played(BOTH)
    os.unlink(os.path.join(run.json("show", task_id)["run_dir"], "stdout.log"))
    assert run.home.cli("logs", task_id).stdout == ""


def test_following_shows_lines_as_they_come(run: Run, tmp_path: Path) -> None:
    """-f waits for the start, prints while the agent writes, and ends with the task."""
    gate = tmp_path / "gate"
    task_id = run.home.submit(f"echo one; while [ ! -e {gate} ]; do sleep 0.01; done; echo two")
    with process(run.home, "logs", "-f", task_id) as one:
        wait_waiting(run.home, "logs", one)
        run.home.up()
        assert one.stdout
        assert one.stdout.readline() == "one\n"
        assert run.home.task(task_id).status in (Status.CLAIMED, Status.RUNNING)
        gate.touch()
        out, err = one.communicate(timeout=60)
    assert (one.returncode, out, err) == (0, "two\n", "")


def test_following_goes_on_with_the_next_attempt(run: Run, tmp_path: Path) -> None:
    """A task that is lost and run again is followed from the beginning of its new attempt."""
    gate = tmp_path / "gate"
    script = f"echo attempt; while [ ! -e {gate} ]; do sleep 0.01; done; echo over"
    task_id = run.home.submit(script, idempotent=True)
    run.home.up()
    with process(run.home, "logs", "-f", task_id) as one:
        assert one.stdout
        assert one.stdout.readline() == "attempt\n"
        supervisor = run.home.supervisor_of(task_id)
        os.kill(supervisor.pid, 9)
        assert one.stdout.readline() == "attempt\n"
        gate.touch()
        out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (0, "over\n")
    assert run.home.task(task_id).attempt == 2


def test_following_a_task_that_never_ran_ends_with_an_error(run: Run) -> None:
    """A task that is cancelled before it starts has nothing to follow."""
    task_id = run.home.submit(run_at="+1h")
    with process(run.home, "logs", "-f", task_id) as one:
        wait_waiting(run.home, "logs", one)
        run("cancel", task_id)
        _, err = one.communicate(timeout=60)
    assert (one.returncode, err) == (4, f"fairlead: task {task_id} is cancelled and has no output of attempt 0.\n")


@pytest.mark.parametrize("stream", ["", " >&2"], ids=["stdout", "stderr"])
def test_a_person_follows_on_a_terminal(run: Run, stream: str) -> None:
    """Both streams are shown on a terminal, and Ctrl-C ends it."""
    task_id = run.home.submit(f"echo hello{stream}; sleep 60")
    run.home.up()
    with terminal(run.home, "logs", "-f", task_id) as one:
        one.shows("hello\n")
        one.type(b"\x03")
        assert one.ended() == 130
    eventually(lambda: run.home.task(task_id).status is Status.RUNNING, "the task ended with its reader")
