"""Supervisors that look after one brief run after another: what is saved, what must not be carried over, who is hit."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conductor.runs import Place, running, shell, text
from tests.conductor.spawners import Spawner, over, sockets_of, supervisor_of
from tests.support.patience import PATIENCE, eventually

from fairlead.base.identity import ProcessId, is_alive, read_stat
from fairlead.conductor import prctl, rundir, spawner, tree
from fairlead.conductor.meta import Meta
from fairlead.conductor.supervisor import FREE

#: A spawner for which runs are brief, and supervisors are waited for, however slow the machine is just now.
PATIENT = """if True:
    from fairlead.conductor import run, spawner

    run.BRIEF = spawner.IDLE = 3600.0
    spawner.main()
"""
SLOW_BEAT = 3600.0
#: A run that waits for a word.
WAITS = "while [ ! -e go ]; do sleep 0.01; done"


@pytest.fixture
def patient(place: Place) -> Iterator[Spawner]:
    """A patient spawner, ended afterwards with all that it has started."""
    patient = Spawner(place, "-c", PATIENT)
    yield patient
    patient.kill()


def play(spawner: Spawner, *command: str) -> tuple[Meta, ProcessId]:
    """A brief run, and who looked after it; returns once that supervisor waits for its next run."""
    meta = spawner.play(*command, heartbeat=SLOW_BEAT)
    supervisor = supervisor_of(meta)
    eventually(lambda: prctl.has_moved_on(supervisor.pid, meta.lock_id) and is_asleep(supervisor), "it does not wait")
    return meta, supervisor


def idle(spawner: Spawner) -> ProcessId:
    """A supervisor that waits for its next run."""
    return play(spawner, "/bin/true")[1]


def is_asleep(process: ProcessId) -> bool:
    stat = read_stat(process.pid)
    return stat is not None and stat.state == "S"


def sleeps_of(process: ProcessId) -> int:
    """How often a process has gone to sleep by itself; -1 if it is gone."""
    with suppress(FileNotFoundError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return -1


# --- Who takes another run ---


def test_after_a_brief_run_comes_another(patient: Spawner) -> None:
    """The same process looks after both; each has its own files and its own end."""
    first, supervisor = play(patient, *shell("echo one; exit 3"))
    second, same = play(patient, *shell("echo two"))
    assert supervisor == same
    assert (first.exit_code, second.exit_code) == (3, 0)
    assert text(rundir.active_dir(str(patient.place.conductor), "project", second.id, 1), "stdout.log") == "two\n"


def test_brief_is_what_ends_within_a_second(spawner: Spawner) -> None:
    """As shipped: of a few runs that do nothing some have the same supervisor."""

    def look() -> bool:
        runs = [spawner.play("/bin/true", heartbeat=SLOW_BEAT) for _ in range(3)]
        return len({supervisor_of(meta) for meta in runs}) < len(runs)

    assert eventually(look, "each run has a supervisor of its own")
    long = spawner.play(*shell("sleep 1.1"), heartbeat=SLOW_BEAT)
    assert tree.wait_gone([supervisor_of(long)], PATIENCE) == []


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (shell("sleep 0.2"), {"heartbeat": 0.01}),
        (shell("sleep 120"), {"heartbeat": SLOW_BEAT, "timeout": 0.1}),
        (("/nowhere",), {"heartbeat": SLOW_BEAT}),
    ],
    ids=["longer than a heartbeat", "stopped", "not started"],
)
def test_a_supervisor_leaves_after_other_runs(
    patient: Spawner, command: tuple[str, ...], changes: dict[str, float]
) -> None:
    """Somebody may be about to end it, or something of the run may be left in it."""
    meta = patient.play(*command, **changes)
    assert tree.wait_gone([supervisor_of(meta)], PATIENCE) == []


@pytest.mark.parametrize("kind", ["removed", "taken back"])
def test_a_request_for_nothing_leaves_its_supervisor_free(patient: Spawner, kind: str) -> None:
    """A run that was cleared away, or taken back, is passed over by whoever was asked to look after it."""
    supervisor = idle(patient)
    run_dir = patient.place.make(("/bin/true",))
    if kind == "removed":
        shutil.rmtree(run_dir)
    else:
        Path(run_dir, "meta.json").unlink()
    before = sleeps_of(supervisor)
    patient.launch(run_dir)
    eventually(lambda: is_asleep(supervisor) and sleeps_of(supervisor) > before, "it does not wait again")
    assert supervisor_of(patient.play("/bin/true")) == supervisor


def test_a_run_that_takes_longer_costs_the_spawner_nothing(spawner: Spawner) -> None:
    """Its supervisor will take no other: there is no descriptor for it, however many runs there are."""
    for _ in range(3):
        running_long = spawner.place.make(shell(WAITS))
        spawner.launch(running_long)
        running(running_long)
    eventually(lambda: len(sockets_of(spawner.process.pid)) == 1, "lines stay open")


# --- When they go ---


def test_without_work_they_go(spawner: Spawner) -> None:
    """A second without a run, and the spawner is alone again."""
    meta = spawner.play("/bin/true", heartbeat=SLOW_BEAT)
    assert tree.wait_gone([supervisor_of(meta)], PATIENCE) == []
    assert spawner.play("/bin/true").status == "completed"


def test_they_go_with_the_daemon(patient: Spawner) -> None:
    """Nobody is left to give them work."""
    supervisor = idle(patient)
    assert patient.close() == 0
    assert not is_alive(supervisor)


def test_they_go_with_a_killed_spawner(patient: Spawner) -> None:
    """No process stays behind that nobody knows of, whether it waits for a run or has one just then."""
    waiting = patient.place.make(shell(WAITS))
    patient.launch(waiting)
    busy = supervisor_of(running(waiting))
    free = idle(patient)
    patient.process.kill()
    assert tree.wait_gone([free], PATIENCE) == []
    (patient.place.work / "go").touch()
    assert over(waiting).status == "completed"
    assert tree.wait_gone([busy], PATIENCE) == []


def test_only_so_many_are_kept() -> None:
    """Of more the oldest are dismissed at once."""
    one = spawner.Spawner("/nowhere", requester=socket.socketpair()[0])
    theirs = []
    for _ in range(spawner.MOST_IDLE + 2):
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.lines[ours.fileno()] = spawner.Child(0, ours, b"")
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


def test_one_that_was_killed_costs_no_run(patient: Spawner) -> None:
    """The next run gets another supervisor at once, whether or not the spawner has heard of the death by then."""
    supervisor = idle(patient)
    os.kill(supervisor.pid, signal.SIGKILL)
    assert tree.wait_gone([supervisor], PATIENCE) == []
    meta = patient.play("/bin/true")
    assert (meta.status, supervisor_of(meta) == supervisor) == ("completed", False)


def test_what_a_killed_one_had_not_read_goes_to_another(patient: Spawner) -> None:
    """Nobody waits for the watchdog to find that a supervisor was told of a run, and never came."""
    supervisor = idle(patient)
    os.kill(supervisor.pid, signal.SIGSTOP)
    eventually(lambda: (stat := read_stat(supervisor.pid)) and stat.state == "T", "it does not stand still")
    untold = patient.place.make(("/bin/true",))
    patient.launch(untold)
    assert patient.play("/bin/true").status == "completed"
    assert text(untold, "meta.json").count("claimed")
    os.kill(supervisor.pid, signal.SIGKILL)
    assert over(untold).status == "completed"
    assert patient.close() == 0
    assert patient.errors.read_text() == ""


# --- What is not carried over ---


def test_nothing_of_a_run_stays_open(patient: Spawner) -> None:
    """Between runs a supervisor has its line to the spawner and nothing else, and stands in nobody's way."""
    supervisor = idle(patient)
    names = {os.readlink(f"/proc/{supervisor.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor.pid}/fd")}
    assert len([name for name in names if name.startswith(("socket", "pipe"))]) == 1
    assert not any(name.startswith(str(patient.place.conductor)) for name in names)
    assert os.readlink(f"/proc/{supervisor.pid}/cwd") == "/"


def test_a_late_signal_for_an_earlier_run_is_nothing(patient: Spawner) -> None:
    """Whoever cancels a run that has just ended hits nobody: neither an idle supervisor nor its next run."""
    supervisor = idle(patient)
    for number in (rundir.LOOK_FOR_NOTE, signal.SIGTERM):
        os.kill(supervisor.pid, number)
    following = patient.place.make(shell(WAITS))
    patient.launch(following)
    assert supervisor_of(running(following)) == supervisor
    os.kill(supervisor.pid, rundir.LOOK_FOR_NOTE)
    (patient.place.work / "go").touch()
    assert over(following).status == "completed"


def test_a_next_run_can_be_cancelled(patient: Spawner) -> None:
    """With a note in its own directory it is meant."""
    supervisor = idle(patient)
    following = patient.place.make(shell("exec sleep 120"))
    patient.launch(following)
    assert supervisor_of(running(following)) == supervisor
    Path(following, rundir.CANCEL).write_text('{"by": "bob"}')
    os.kill(supervisor.pid, rundir.LOOK_FOR_NOTE)
    assert over(following).error == "cancelled by bob"


# --- What proves whom they look after ---


def test_a_supervisor_says_which_run_it_looks_after(place: Place) -> None:
    """Its name says so; of other processes, and of those that are gone, nothing is known."""
    run_dir, supervisor = place.begin(shell(WAITS))
    lock_id = running(run_dir).lock_id
    assert not prctl.has_moved_on(supervisor.pid, lock_id)
    assert prctl.has_moved_on(supervisor.pid, "another")
    assert not prctl.has_moved_on(os.getpid(), lock_id)
    (place.work / "go").touch()
    supervisor.wait(PATIENCE)
    assert not prctl.has_moved_on(supervisor.pid, "another")
