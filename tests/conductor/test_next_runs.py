"""Supervisors that look after one brief run after another: what is saved, what must not be carried over, who is hit."""

import os
import signal
import socket
from pathlib import Path

import pytest
from tests.conductor.runs import PATIENCE, Place, eventually, running, shell, text
from tests.conductor.spawners import Spawner, over, supervisor_of

from fairlead.base.identity import ProcessId, is_alive, read_stat
from fairlead.conductor import prctl, rundir, spawner, tree
from fairlead.conductor.meta import Meta
from fairlead.conductor.supervisor import FREE

#: A run that ends within a heartbeat is brief; this leaves even a loaded machine the full second.
SLOW_BEAT = 5.0
#: A run that waits for a word, and beats meanwhile.
WAITS = "while [ ! -e go ]; do sleep 0.01; done"


def play(spawner: Spawner, *command: str) -> tuple[Meta, ProcessId]:
    """A brief run, and who looked after it; returns once that supervisor has no run."""
    meta = spawner.play(*(command or ("/bin/true",)), heartbeat=SLOW_BEAT)
    supervisor = supervisor_of(meta)
    eventually(lambda: prctl.has_moved_on(supervisor.pid, meta.token) or not is_alive(supervisor), "it stays with it")
    return meta, supervisor


def play_again(spawner: Spawner, supervisor: ProcessId, *command: str) -> Meta:
    """Further brief runs until this supervisor has looked after one: on a busy machine it may have been too slow."""

    def look() -> Meta | None:
        meta, by = play(spawner, *command)
        return meta if by == supervisor else None

    return eventually(look, "it gets no other run")


def idle(spawner: Spawner) -> ProcessId:
    """A supervisor that waits for its next run."""
    supervisor = play(spawner)[1]
    eventually(lambda: is_asleep(supervisor), "it does not wait")
    return supervisor


def is_asleep(process: ProcessId) -> bool:
    stat = read_stat(process.pid)
    return stat is not None and stat.state == "S"


# --- Who takes another run ---


def test_after_a_brief_run_comes_another(spawner: Spawner) -> None:
    """The same process looks after both; each has its own files and its own end."""
    first, supervisor = play(spawner, *shell("echo one; exit 3"))
    second = play_again(spawner, supervisor, *shell("echo two"))
    assert (first.exit_code, second.exit_code) == (3, 0)
    assert text(rundir.active_dir(str(spawner.place.conductor), "project", second.id, 1), "stdout.log") == "two\n"


@pytest.mark.parametrize("changes", [{"heartbeat": 0.01}, {"heartbeat": SLOW_BEAT, "timeout": 0.1}], ids=str)
def test_a_supervisor_leaves_after_a_run_that_was_not_brief(spawner: Spawner, changes: dict[str, float]) -> None:
    """After a whole heartbeat, or a run that had to be stopped, somebody may be about to end its supervisor."""
    meta = spawner.play(*shell("sleep 0.2"), **changes)
    assert tree.wait_gone([supervisor_of(meta)], PATIENCE) == []


def test_a_run_that_cannot_be_started_is_brief(spawner: Spawner) -> None:
    """A program that is not there costs its supervisor nothing."""
    meta, supervisor = play(spawner, "/nowhere")
    assert meta.reason == "not_started"
    assert play_again(spawner, supervisor).status == "completed"


def test_a_request_for_nothing_leaves_its_supervisor_free(spawner: Spawner) -> None:
    """A run that was cleared away, or taken back, is passed over by whoever was asked to look after it."""
    supervisor = idle(spawner)
    spawner.launch("/nowhere/at/all")
    taken_back = spawner.place.make(("/bin/true",))
    Path(taken_back, "meta.json").unlink()
    spawner.launch(taken_back)
    assert play_again(spawner, supervisor).status == "completed"


# --- When they go ---


def test_without_work_they_go(spawner: Spawner) -> None:
    """A second without a run, and the spawner is alone again."""
    supervisor = idle(spawner)
    assert tree.wait_gone([supervisor], PATIENCE) == []
    assert spawner.play("/bin/true").status == "completed"


def test_they_go_with_the_daemon(spawner: Spawner) -> None:
    """Nobody is left to give them work."""
    supervisor = idle(spawner)
    assert spawner.close() == 0
    assert not is_alive(supervisor)


def test_they_go_with_a_killed_spawner(spawner: Spawner) -> None:
    """No process stays behind that nobody knows of, whether it waits for a run or has one just then."""
    waiting = spawner.place.make(shell(WAITS), heartbeat=SLOW_BEAT)
    spawner.launch(waiting)
    busy = supervisor_of(running(waiting))
    free = idle(spawner)
    spawner.process.kill()
    assert tree.wait_gone([free], PATIENCE) == []
    (spawner.place.work / "go").touch()
    assert over(waiting).status == "completed"
    assert tree.wait_gone([busy], PATIENCE) == []


def test_only_so_many_are_kept() -> None:
    """Of more the oldest are dismissed at once."""
    one = spawner.Spawner(socket.socketpair()[0], "/nowhere")
    theirs = []
    for _ in range(spawner.MOST_IDLE + 2):
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.lines[ours.fileno()] = ours
        one.poll.register(ours)
        other.send(FREE)
        one.hear_supervisors({ours.fileno()})
        theirs.append(other)
    one.dismiss(spawner.MOST_IDLE)
    for other in theirs:
        other.setblocking(False)
    assert [other.recv(10) for other in theirs[:2]] == [b"", b""]
    for other in theirs[2:]:
        with pytest.raises(BlockingIOError):
            other.recv(10)


def test_one_that_was_killed_costs_no_run(spawner: Spawner) -> None:
    """The next run gets another supervisor at once, although the dead one may have been told of it."""
    supervisor = idle(spawner)
    os.kill(supervisor.pid, signal.SIGKILL)
    meta = spawner.play("/bin/true")
    assert (meta.status, supervisor_of(meta) == supervisor) == ("completed", False)


def test_what_a_killed_one_had_not_read_goes_to_another(spawner: Spawner) -> None:
    """Nobody waits for the watchdog to find that a supervisor was told of a run, and never came."""
    supervisor = idle(spawner)
    os.kill(supervisor.pid, signal.SIGSTOP)
    untold = spawner.place.make(("/bin/true",))
    spawner.launch(untold)
    assert spawner.play("/bin/true").status == "completed"
    assert text(untold, "meta.json").count("claimed")
    os.kill(supervisor.pid, signal.SIGKILL)
    assert over(untold).status == "completed"
    assert spawner.close() == 0
    assert spawner.errors.read_text() == ""


# --- What is not carried over ---


def test_nothing_of_a_run_stays_open(spawner: Spawner) -> None:
    """Between runs a supervisor has its line to the spawner and nothing else, and stands in nobody's way."""
    supervisor = idle(spawner)
    names = {os.readlink(f"/proc/{supervisor.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor.pid}/fd")}
    assert len([name for name in names if name.startswith(("socket", "pipe"))]) == 1
    assert not any(name.startswith(str(spawner.place.conductor)) for name in names)
    assert os.readlink(f"/proc/{supervisor.pid}/cwd") == "/"


def test_a_late_signal_for_an_earlier_run_is_nothing(spawner: Spawner) -> None:
    """Whoever cancels a run that has just ended hits nobody: neither an idle supervisor nor its next run."""
    supervisor = idle(spawner)
    for number in (rundir.LOOK_FOR_NOTE, signal.SIGTERM):
        os.kill(supervisor.pid, number)
    following = spawner.place.make(shell(WAITS))
    spawner.launch(following)
    assert supervisor_of(running(following)) == supervisor
    os.kill(supervisor.pid, rundir.LOOK_FOR_NOTE)
    (spawner.place.work / "go").touch()
    assert over(following).status == "completed"


def test_a_next_run_can_be_cancelled(spawner: Spawner) -> None:
    """With a note in its own directory it is meant."""
    supervisor = idle(spawner)
    following = spawner.place.make(shell("exec sleep 120"))
    spawner.launch(following)
    assert supervisor_of(running(following)) == supervisor
    Path(following, rundir.CANCEL).write_text('{"by": "bob"}')
    os.kill(supervisor.pid, rundir.LOOK_FOR_NOTE)
    assert over(following).error == "cancelled by bob"


# --- What proves whom they look after ---


def test_a_supervisor_says_which_run_it_looks_after(place: Place) -> None:
    """Its name says so; of other processes, and of those that are gone, nothing is known."""
    run_dir, supervisor = place.begin(shell(WAITS))
    token = running(run_dir).token
    assert not prctl.has_moved_on(supervisor.pid, token)
    assert prctl.has_moved_on(supervisor.pid, token + 1)
    assert not prctl.has_moved_on(os.getpid(), token)
    (place.work / "go").touch()
    supervisor.wait(PATIENCE)
    assert not prctl.has_moved_on(supervisor.pid, token + 1)
