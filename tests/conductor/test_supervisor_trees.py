"""The supervisor and what its agent starts: nothing of a run is alive any more when its end is written."""

import array
import os
import signal
import socket
from pathlib import Path

import pytest
from tests.conductor.runs import UNITS, Place, agent, ended, is_gone, running, shell, state, text, written
from tests.support.patience import eventually

from fairlead.conductor import rundir, tree
from fairlead.conductor.meta import Meta
from fairlead.conductor.orders import MARKER


def assert_gone_before(meta: Meta, witness: Path) -> None:
    """Nobody wrote a time into the file that is later than the end of the run."""
    assert meta.finished_at is not None
    assert 0 < int(witness.read_text()) <= meta.finished_at
    assert tree.marked(MARKER, meta.lock_id) == []


@pytest.mark.parametrize("name", ["leave_daemon", "leave_bare_daemon", "refork", "headless"])
def test_what_an_agent_leaves_is_ended_first(place: Place, name: str) -> None:
    """Daemons deaf to TERM, without marker, forking for ever, or without a first thread: all gone before the end."""
    witness = place.path / "witness"
    meta = place.play(agent(name, witness), grace=0.1)
    assert (meta.status, meta.exit_code) == ("completed", 0)
    assert_gone_before(meta, witness)


@pytest.mark.parametrize("name", ["leave_daemon", "leave_bare_daemon"])
def test_a_time_limit_ends_the_whole_tree(place: Place, name: str) -> None:
    """Over its time, the agent goes with everything that it has started and hidden."""
    witness = place.path / "witness"
    meta = place.play(agent(name, witness, 120), timeout=1.0, grace=0.1)
    assert (meta.status, meta.reason) == ("failed", "timeout")
    assert_gone_before(meta, witness)


def test_many_chains_are_outrun(place: Place) -> None:
    """Several chains of processes, each link of which starts the next and ends at once, come to their end."""
    witness = place.path / "witness"
    meta = place.play(agent("refork", witness, 6), grace=0.1)
    assert_gone_before(meta, witness)


def test_a_keeper_does_not_get_ahead(place: Place) -> None:
    """A process that replaces every worker that ends is ended with its workers."""
    witness = place.path / "witness"
    meta = place.play(agent("respawn", witness), timeout=1.0, grace=0.1)
    assert meta.reason == "timeout"
    assert_gone_before(meta, witness)


def test_a_left_child_is_asked_first(place: Place) -> None:
    """A background child that an agent leaves may end in good order."""
    notes = place.path / "notes"
    meta = place.play(agent("leave_polite", notes), grace=60.0)
    assert meta.status == "completed"
    assert notes.read_text() == "ready\nasked\n"


def test_a_grace_of_minutes_is_not_for_what_is_left(place: Place) -> None:
    """The agent's own grace may be long; what it leaves behind has two seconds."""
    witness = place.path / "witness"
    meta = place.play(agent("leave_daemon", witness), grace=600.0)
    assert_gone_before(meta, witness)
    assert meta.held < 60


def test_output_that_an_orphan_holds_is_complete(place: Place) -> None:
    """An orphan that keeps stdout open does not keep the run open, and what it wrote is there."""
    script = "(trap '' TERM; echo from the orphan; touch ready; exec sleep 120) & while [ ! -e ready ]; do :; done"
    run_dir, supervisor = place.begin(shell(script), grace=0.1)
    assert ended(run_dir, supervisor).status == "completed"
    assert text(run_dir, "stdout.log") == "from the orphan\n"


def test_output_that_a_stranger_holds_is_not_awaited(place: Place) -> None:
    """A process outside the run that was handed its stdout cannot keep it from ending."""
    address = str(place.path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()
        run_dir, supervisor = place.begin(agent("lend_output", address))
        with listener.accept()[0] as stranger:
            _, [(_, _, data)], _, _ = stranger.recvmsg(4, socket.CMSG_SPACE(4))
            [borrowed] = array.array("i", data[:4])
            stranger.send(b".")
        assert ended(run_dir, supervisor).status == "completed"
        os.close(borrowed)
    assert text(run_dir, "stdout.log") == "last words\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose a pid")
@pytest.mark.skipif(bool(UNITS), reason="systemd knows its own by more than their pids")
def test_an_orphan_with_the_agents_pid_is_not_the_agent(place: Place) -> None:
    """The agent's exit code stays its own when a later process of the run gets its pid and ends otherwise."""

    def passed_on() -> bool:
        meta = place.play(agent("pass_pid_on", 3), grace=60.0)
        assert (meta.status, meta.exit_code) == ("failed", 3)
        pids = place.work / "pids"
        return pids.exists() and str(meta.pid) in pids.read_text().split()

    eventually(passed_on, "others are always faster to get the pid")


# --- A supervisor that is killed ---


def kill_supervisor(place: Place, run_dir: str, witness: Path) -> Meta:
    """Kill the supervisor once it has noted agent and daemon; they go to whoever takes orphans in."""
    written(witness)
    supervisor = place.supervisors[-1]

    def all_noted() -> Meta | None:
        meta, present = state(run_dir), tree.below(supervisor.pid)
        return meta if meta and len(present) == 2 and set(meta.processes) == set(present) else None

    meta = eventually(all_noted, "the daemon is not noted")
    supervisor.kill()
    supervisor.wait()
    return meta


@pytest.mark.skipif(bool(UNITS), reason="an agent in a unit is not below its supervisor")
@pytest.mark.parametrize("name", ["leave_daemon", "leave_bare_daemon"])
def test_a_killed_supervisors_processes_are_found(place: Place, name: str) -> None:
    """Marker and notes find what a killed supervisor left, a daemon without environment included; then it is ended."""
    witness = place.path / "witness"
    run_dir, _ = place.begin(agent(name, witness, 120))
    meta = kill_supervisor(place, run_dir, witness)
    left = tree.leftovers(MARKER, meta.lock_id, meta.processes)
    assert {process.pid for process in left} == {process.pid for process in meta.processes}
    with rundir.only_inhabitant(run_dir) as alone:
        assert alone
    assert tree.end_leftovers(MARKER, meta.lock_id, meta.processes, 10.0) == []
    assert all(map(is_gone, left))


def test_a_bare_child_is_found_below_a_marked_one(place: Place) -> None:
    """A descendant that cleared its environment after the last beat is found as long as its parent lives."""
    run_dir, supervisor = place.begin(shell("touch ready; while :; do env -i sleep 120; done"), heartbeat=1e6)
    meta = running(run_dir)
    supervisor.kill()
    supervisor.wait()
    assert meta.pid is not None
    [child] = eventually(lambda: [*tree.below(meta.pid or 0)], "no child")
    assert MARKER.encode() not in Path(f"/proc/{child.pid}/environ").read_bytes()
    assert child in tree.leftovers(MARKER, meta.lock_id, ())
    assert tree.end_leftovers(MARKER, meta.lock_id, (), 10.0) == []
    assert is_gone(child)


def test_the_lock_of_a_killed_supervisor_is_free(place: Place) -> None:
    """The flock goes with the supervisor, not with its agent: no descriptor of it was handed on."""
    run_dir, supervisor = place.begin(shell("exec sleep 120"))
    meta = running(run_dir)
    with rundir.only_inhabitant(run_dir) as alone:
        assert not alone
    supervisor.kill()
    supervisor.wait()
    with rundir.only_inhabitant(run_dir) as alone:
        assert alone
    assert place.left_of(run_dir) == meta.processes
    tree.send(meta.processes, signal.SIGKILL)
