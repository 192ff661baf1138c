"""The supervisor: how a run ends, and what is written down of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conductor.runs import Place, agent, beaten, ended, running, shell, state, text, written
from tests.support.patience import PATIENCE, eventually

from fairlead.base.clock import SystemClock
from fairlead.conductor import rundir
from fairlead.conductor.meta import read_meta
from fairlead.conductor.orders import read_launch
from fairlead.conductor.run import Run


def test_a_success_is_written_down(place: Place) -> None:
    """An agent that exits with 0 has completed: code, times, output and an emptied process list say so."""
    run_dir, supervisor = place.begin(shell("echo out; echo err >&2"))
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.reason, meta.error, meta.exit_code, meta.signal) == ("completed", "exit", "", 0, None)
    assert (text(run_dir, "stdout.log"), text(run_dir, "stderr.log")) == ("out\n", "err\n")
    assert meta.claimed_at <= (meta.started_at or 0) <= (meta.finished_at or 0)
    assert 0 < meta.held < PATIENCE
    assert meta.supervisor is not None
    assert (meta.supervisor.pid, meta.processes, meta.log_tail) == (supervisor.pid, [], "")


def test_an_exit_code_is_a_failure(place: Place) -> None:
    """Any other exit code has failed, and the last words are kept."""
    meta = place.play(shell("echo quiet; echo sorry >&2; exit 3"))
    assert (meta.status, meta.reason, meta.exit_code) == ("failed", "exit", 3)
    assert meta.error == "the agent ended with exit code 3"
    assert meta.log_tail == "sorry\n"


def test_the_last_words_are_those_of_stdout_if_stderr_is_silent(place: Place) -> None:
    """Without a word on stderr, the end of stdout is kept with a failure."""
    assert place.play(shell("echo only this; exit 1")).log_tail == "only this\n"


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (40, "SIGRTMIN+6"), (64, "SIGRTMAX")])
def test_a_signal_is_a_failure(place: Place, number: int, name: str) -> None:
    """An agent that somebody killed has failed, by that signal's name, real-time signals included."""
    meta = place.play(shell(f"kill -{number} $$"))
    assert (meta.status, meta.reason, meta.exit_code, meta.signal) == ("failed", "signal", None, name)
    assert meta.error == f"the agent was ended by {name}"


def test_the_agent_is_killed_from_outside(place: Place) -> None:
    """A kill -9 of the agent by a person ends the run as failed at once."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    pid = running(run_dir).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert ended(run_dir, supervisor).signal == "SIGKILL"


def test_an_agent_starts_with_a_clean_slate(place: Place) -> None:
    """The agent leads a session of its own, ignores and blocks no signal, and has three descriptors."""
    script = "cat /proc/self/status; echo session $(cut -d' ' -f6 /proc/$$/stat) $$; ls /proc/$$/fd"
    run_dir, supervisor = place.begin(shell(script))
    meta = ended(run_dir, supervisor)
    lines = text(run_dir, "stdout.log").splitlines()
    masks = dict(line.split(":") for line in lines if line.startswith(("SigBlk", "SigIgn")))
    # 32 and 33 are the C library's own; posix_spawn leaves them ignored.
    assert {name: int(mask, 16) & ~(3 << 31) for name, mask in masks.items()} == {"SigBlk": 0, "SigIgn": 0}
    assert f"session {meta.pid} {meta.pid}" in lines
    assert [line for line in lines if line.isdigit()] == ["0", "1", "2"]


def test_the_environment_is_the_one_ordered(place: Place) -> None:
    """Nothing of the supervisor's own environment reaches the agent."""
    run_dir, supervisor = place.begin(("/usr/bin/env",), env={"ONLY": "this"})
    ended(run_dir, supervisor)
    assert text(run_dir, "stdout.log") == "ONLY=this\n"


def test_the_agent_works_in_its_directory(place: Place) -> None:
    """The working directory is the one ordered."""
    run_dir, supervisor = place.begin(("/bin/pwd",))
    ended(run_dir, supervisor)
    assert text(run_dir, "stdout.log") == f"{place.work}\n"


def test_the_agent_reads_its_prompt(place: Place) -> None:
    """A prompt on stdin may be far longer than an argument can be, and arrives whole."""
    prompt = "do this\n" * 500_000
    run_dir = place.make(shell("wc -c"), prompt)
    orders = json.loads(text(run_dir, "task.json"))
    orders["stdin"] = os.path.join(run_dir, "prompt.txt")
    Path(run_dir, "task.json").write_text(json.dumps(orders))
    ended(run_dir, place.supervise(run_dir))
    assert int(text(run_dir, "stdout.log")) == len(prompt)


def test_without_a_prompt_stdin_is_empty(place: Place) -> None:
    """An agent that is given nothing to read meets the end of the file at once."""
    run_dir, supervisor = place.begin(shell("cat | wc -c"))
    ended(run_dir, supervisor)
    assert int(text(run_dir, "stdout.log")) == 0


# --- What cannot be started ---


def test_a_prompt_too_long_for_an_argument_is_explained(place: Place) -> None:
    """The kernel's limit for one argument ends the run with a sentence that says what to do instead."""
    meta = place.play(("/bin/echo", "x" * 200_000))
    assert (meta.status, meta.reason, meta.exit_code) == ("failed", "not_started", None)
    assert "{prompt_file} or stdin" in meta.error


def test_a_missing_program_is_explained(place: Place) -> None:
    """A program that is gone by now ends the run as failed."""
    meta = place.play(("/nowhere/agent",))
    assert (meta.status, meta.reason) == ("failed", "not_started")
    assert meta.error == "the agent could not be started: /nowhere/agent: No such file or directory"


def test_a_file_that_is_no_program_is_explained(place: Place) -> None:
    """Neither script nor binary: the kernel's own reason is given."""
    program = place.work / "agent"
    program.write_text("just text")
    program.chmod(0o700)
    assert place.play((str(program),)).error == f"the agent could not be started: {program}: Exec format error"


def test_a_missing_directory_is_explained(place: Place) -> None:
    """A working directory that is gone by now ends the run as failed, by its name."""
    meta = place.play(("/bin/true",), cwd="/nowhere/at/all")
    assert (meta.status, meta.reason) == ("failed", "not_started")
    assert meta.error == "the agent could not be started: /nowhere/at/all: No such file or directory"


def test_what_no_program_can_be_given_is_explained(place: Place) -> None:
    """A NUL in an argument ends the run as failed, not the supervisor."""
    meta = place.play(("/bin/echo", "a\0b"))
    assert (meta.status, meta.reason) == ("failed", "not_started")
    assert "null" in meta.error


# --- Time limit and requests to stop ---


def test_the_time_limit_asks_first(place: Place) -> None:
    """After its time an agent gets the signal it is configured for; it still fails, though it ended in good order."""
    notes = place.path / "notes"
    meta = place.play(agent("stop_slowly", notes, 0), timeout=1.5, grace=60.0)
    assert notes.read_text() == "ready\nheard SIGTERM\n"
    assert (meta.status, meta.reason, meta.exit_code) == ("failed", "timeout", 0)
    assert meta.error == "still running after 1.5 s, its time limit"


def test_the_signal_to_stop_is_the_agents_own(place: Place) -> None:
    """An agent that wants SIGINT gets SIGINT."""
    notes = place.path / "notes"
    place.play(agent("stop_slowly", notes, 0), timeout=1.5, grace=60.0, stop_signal="INT")
    assert notes.read_text() == "ready\nheard SIGINT\n"


def test_who_does_not_stop_is_killed(place: Place) -> None:
    """After the grace an agent that ignores the signal is killed."""
    meta = place.play(shell("trap '' TERM; sleep 120 & wait; sleep 120"), timeout=0.3, grace=0.2)
    assert (meta.status, meta.reason, meta.signal) == ("failed", "timeout", "SIGKILL")


def test_without_a_limit_nothing_is_ended(place: Place) -> None:
    """A time limit of 0 is none."""
    assert place.play(shell("sleep 0.3"), timeout=0.0).status == "completed"


def test_the_watch_need_not_be_short(place: Place) -> None:
    """Years between two beats, for a limit and for the grace are more milliseconds than the kernel counts, and work."""
    meta = place.play(shell("sleep 0.5"), heartbeat=1e9, timeout=1e9, grace=1e9)
    assert (meta.status, meta.heartbeat.seq) == ("completed", 1)


def cancel(run_dir: str, supervisor: "subprocess.Popen[bytes]", note: str) -> None:
    running(run_dir)
    Path(run_dir, rundir.CANCEL).write_text(note)
    supervisor.terminate()


def test_a_cancel_note_says_who(place: Place) -> None:
    """SIGTERM with a note beside meta.json is a person's wish: cancelled, by that person."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    cancel(run_dir, supervisor, '{"by": "bob"}')
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.reason, meta.error) == ("cancelled", "cancelled", "cancelled by bob")


@pytest.mark.parametrize("note", ["", "[]", '{"from": "bob"}', "\0", '{"by"'])
def test_a_strange_cancel_note_is_one_all_the_same(place: Place, note: str) -> None:
    """Whatever the note holds, it is there: somebody cancelled."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    cancel(run_dir, supervisor, note)
    assert ended(run_dir, supervisor).error == "cancelled by somebody"


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_cancel_note_need_not_be_readable(place: Place, kind: str) -> None:
    """A directory in the note's place, or a file that may not be read, does not end the supervisor."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    running(run_dir)
    note = Path(run_dir, rundir.CANCEL)
    note.mkdir() if kind == "directory" else note.touch(mode=0)
    supervisor.terminate()
    assert ended(run_dir, supervisor).status == "cancelled"


def test_a_signal_without_a_note_is_an_interruption(place: Place) -> None:
    """SIGTERM alone ends the run as failed: nobody asked for it by name."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    running(run_dir)
    supervisor.terminate()
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.reason) == ("failed", "interrupted")


def test_other_signals_are_not_heard(place: Place) -> None:
    """Ctrl-C and a hang-up at the daemon's terminal do not reach a run."""
    run_dir, supervisor = place.begin(shell("while [ ! -e go ]; do sleep 0.01; done"))
    running(run_dir)
    supervisor.send_signal(signal.SIGINT)
    supervisor.send_signal(signal.SIGHUP)
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).status == "completed"


def test_a_stop_that_comes_twice_is_one(place: Place) -> None:
    """A second SIGTERM neither shortens the grace nor changes the reason."""
    notes = place.path / "notes"
    run_dir, supervisor = place.begin(agent("stop_slowly", notes, 4), grace=60.0)
    written(notes)
    for _ in range(20):
        supervisor.terminate()
    meta = ended(run_dir, supervisor)
    assert (meta.reason, meta.exit_code) == ("interrupted", 4)
    assert notes.read_text() == "ready\nheard SIGTERM\n"


@pytest.mark.parametrize("asked", [True, False], ids=["stop", "time limit"])
def test_an_end_stays_what_it_was(place: Place, *, asked: bool) -> None:
    """Once the agent has ended by itself, no limit and no stop while its remains are cleared changes that."""
    deaf_child = "(trap '' TERM; touch ready; sleep 120) & while [ ! -e ready ]; do sleep 0.01; done"
    run_dir, supervisor = place.begin(shell(deaf_child), timeout=60.0 if asked else 1.5, grace=2.0)
    if asked:
        meta = running(run_dir)
        eventually(lambda: not os.path.exists(f"/proc/{meta.pid}"), "the agent does not end")
        supervisor.terminate()
    meta = ended(run_dir, supervisor)
    assert (meta.status, meta.reason, meta.error) == ("completed", "exit", "")


# --- Signs of life ---


def test_heartbeats_go_on(place: Place) -> None:
    """As long as the agent runs, `seq` grows; the pid and every process of the run are in meta.json."""
    run_dir, supervisor = place.begin(shell("sleep 120 & wait"))
    first = running(run_dir)
    later = beaten(run_dir, first.heartbeat.seq + 5)
    assert later.status == "running"
    assert later.heartbeat.at > first.heartbeat.at
    assert later.pid in [process.pid for process in later.processes]
    assert len(later.processes) == 2
    supervisor.terminate()
    ended(run_dir, supervisor)


def test_the_first_beat_comes_early(place: Place) -> None:
    """However long the interval, who is in the run is known after a moment."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"), heartbeat=1e6)
    assert running(run_dir).heartbeat.seq == 1
    supervisor.terminate()
    ended(run_dir, supervisor)


def test_progress_is_the_last_line(place: Place) -> None:
    """While it runs and at its end, the last line of the progress file is what is known of the progress."""
    script = 'printf "first\\nhalf" > "$P"; while [ ! -e go ]; do sleep 0.01; done; printf "\\nall\\n" >> "$P"'
    run_dir = place.make(shell("true"))
    orders = json.loads(text(run_dir, "task.json")) | {"argv": shell(script)}
    orders["env"]["P"] = os.path.join(run_dir, "progress")
    Path(run_dir, "task.json").write_text(json.dumps(orders))
    supervisor = place.supervise(run_dir)
    eventually(lambda: (meta := state(run_dir)) and meta.progress == "half", "no progress")
    (place.work / "go").touch()
    assert ended(run_dir, supervisor).progress == "all"


def test_the_watchdog_is_rung(place: Place) -> None:
    """Start and end are rung, by the directory's name, and the end is in meta.json before its ring."""
    bell = place.listen()
    run_dir, supervisor = place.begin(shell("until [ -e go ]; do sleep 0.01; done"))
    assert eventually(bell.take, "nobody rings") == {"started task-1.1"}
    (place.work / "go").touch()
    assert eventually(bell.take, "nobody rings") == {"ended task-1.1"}
    assert read_meta(run_dir).status == "completed"
    ended(run_dir, supervisor)
    bell.close()


def test_a_start_is_rung_once_and_not_before_its_time(place: Place) -> None:
    """The end of a short run says that it has started: nobody is woken twice for it."""
    bell = place.listen()
    run_dir = place.make(shell("true"))
    run = Run(run_dir, read_meta(run_dir), read_launch(run_dir), SystemClock())
    run.tell_at = 100.0
    run.tell_start(99.0)
    assert bell.take() == set()
    run.tell_start(100.0)
    assert bell.take() == {"started task-1.1"}
    run.tell_start(101.0)
    assert bell.take() == set()
    bell.close()


def test_a_bell_that_cannot_be_rung_costs_nothing(place: Place) -> None:
    """An agent that runs is looked after to its end, even if the bells' place is no directory."""
    not_a_directory = place.path / "file"
    not_a_directory.touch()
    meta = place.play(shell("sleep 0.1; exit 7"), bells=str(not_a_directory))
    assert (meta.reason, meta.exit_code) == ("exit", 7)


# --- Who may supervise ---


def test_the_second_supervisor_leaves(place: Place) -> None:
    """Started twice, a run has one supervisor: the other leaves without a word, and the agent runs once."""
    run_dir = place.make(shell("echo started; while [ ! -e go ]; do sleep 0.01; done"))
    first = place.supervise(run_dir)
    running(run_dir)
    second = place.supervise(run_dir)
    assert second.wait(PATIENCE) == 0
    (place.work / "go").touch()
    assert ended(run_dir, first).status == "completed"
    assert text(run_dir, "stdout.log") == "started\n"
    assert not Path(run_dir, "supervisor.err").exists()


def test_a_run_is_played_once(place: Place) -> None:
    """A supervisor that comes when all is over changes nothing."""
    run_dir, supervisor = place.begin(shell("echo started"))
    ended(run_dir, supervisor)
    before = text(run_dir, "meta.json")
    assert place.supervise(run_dir).wait(PATIENCE) == 0
    assert text(run_dir, "meta.json") == before
    assert text(run_dir, "stdout.log") == "started\n"


def test_a_directory_that_is_gone_is_left_alone(place: Place) -> None:
    """A supervisor that comes for a run that was cleared away leaves, and makes nothing anew."""
    nowhere = place.path / "gone"
    assert place.supervise(str(nowhere)).wait(PATIENCE) == 0
    assert not nowhere.exists()
    nowhere.mkdir()
    assert place.supervise(str(nowhere)).wait(PATIENCE) == 0
    assert os.listdir(nowhere) == []


def test_orders_that_cannot_be_read_leave_a_trace(place: Place) -> None:
    """Without orders nothing starts: the run stays claimed, to be taken back, and the trace says why."""
    run_dir = place.make(shell("touch ran"))
    Path(run_dir, "task.json").write_text("{}")
    assert place.supervise(run_dir).wait(PATIENCE) == 1
    assert "argv" in text(run_dir, "supervisor.err")
    assert read_meta(run_dir).status == "claimed"
    assert not (place.work / "ran").exists()


def test_a_supervisor_can_be_started_by_a_relative_path(place: Place) -> None:
    """The directory is found again after the supervisor has gone to work elsewhere."""
    run_dir = place.make(shell("true"))
    command = [sys.executable, "-m", "fairlead.conductor.supervisor", os.path.basename(run_dir)]
    subprocess.run(command, cwd=os.path.dirname(run_dir), check=True, timeout=PATIENCE)
    assert read_meta(run_dir).status == "completed"
