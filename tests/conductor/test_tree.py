"""Process trees: finding all of a run, ending it, and never hitting anybody else."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conductor.runs import agent, is_gone, written
from tests.support.patience import eventually

from fairlead.base.identity import ProcessId, is_alive, read_stat, start_of
from fairlead.conductor import tree
from fairlead.conductor.prctl import become_subreaper

MARKER = "FAIRLEAD_TEST_MARKER"


class Started:
    """Processes that a test has started, and what these have."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, *command: str, marked: bool = True) -> ProcessId:
        """Start a command, with the marker in its environment or without."""
        env = {"PATH": os.environ["PATH"]} | ({MARKER: self.value} if marked else {})
        process = subprocess.Popen(command, env=env)
        self.processes.append(process)
        return identity(process.pid)

    def clear(self) -> None:
        """End all of them."""
        for process in self.processes:
            tree.send(tree.below(process.pid), signal.SIGKILL)
            process.kill()
            process.wait()
        tree.end_leftovers(MARKER, self.value, (), 10.0)


def identity(pid: int) -> ProcessId:
    """The process with this pid, even if it has just ended."""
    stat = read_stat(pid)
    assert stat is not None
    return ProcessId(pid, stat.start)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts processes; all are ended afterwards."""
    started = Started(str(tmp_path))
    yield started
    started.clear()


def sleepers(start: Started, count: int) -> ProcessId:
    """A shell with this many sleeping children."""
    shell = start("sh", "-c", "sleep 120 & " * count + "wait")
    eventually(lambda: len(tree.below(shell.pid)) == count, "the children do not come")
    return shell


# --- Finding ---


def test_all_below_a_process_are_found(start: Started) -> None:
    """Children and their children are listed, each parent before its own."""
    top = start("sh", "-c", "sh -c 'sleep 120 & wait' & sleep 120 & wait")
    eventually(lambda: len(tree.descendants_of(top.pid)) == 3, "the descendants do not come")
    found = tree.descendants_of(top.pid)
    inner = next(pid for pid in found if tree.children_of(pid))
    assert set(tree.children_of(top.pid)) < set(found)
    assert found.index(inner) < found.index(tree.children_of(inner)[0])
    assert [process.pid for process in tree.below(top.pid)] == found


def test_children_of_every_thread_are_found(start: Started) -> None:
    """A child that another thread than the first has started is a child."""
    top = start(*agent("start_in_thread"))
    [child] = eventually(lambda: tree.children_of(top.pid), "no child")
    assert str(child) not in Path(f"/proc/{top.pid}/task/{top.pid}/children").read_text().split()


def test_the_dead_have_nobody(start: Started) -> None:
    """A process that is gone has no children, and a zombie is not among the living."""
    done = start("true")
    eventually(lambda: start_of(done.pid) is None, "it does not end")
    assert Path(f"/proc/{done.pid}").exists()
    assert tree.identify([done.pid]) == []
    assert not is_alive(done)
    start.processes[0].wait()
    assert tree.children_of(done.pid) == tree.descendants_of(done.pid) == []
    assert tree.identify([done.pid]) == []


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans come to the test, for its time."""
    become_subreaper()
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.mark.usefixtures("subreaper")
def test_a_process_lives_as_long_as_any_thread(start: Started, tmp_path: Path) -> None:
    """A process whose first thread has ended looks like a zombie, is alive, and can be killed."""
    witness = tmp_path / "witness"
    others = set(tree.children_of(os.getpid()))
    others.add(start(*agent("headless", witness)).pid)
    written(witness)
    [pid] = eventually(lambda: set(tree.children_of(os.getpid())) - others, "no orphan")
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z", "its first thread does not end")
    headless = identity(pid)
    assert is_alive(headless)
    assert headless in tree.leftovers("NO_SUCH", "marker", [headless])
    assert tree.send_safely(headless, signal.SIGKILL)
    eventually(lambda: is_gone(headless), "it does not end")
    os.waitpid(pid, 0)


def test_marked_processes_are_found(start: Started) -> None:
    """The marker with its exact value, anywhere in the environment, and no other."""
    ours = start("sleep", "120")
    start("sleep", "120", marked=False)
    eventually(lambda: tree.marked(MARKER, start.value), "it is not found")
    assert tree.marked(MARKER, start.value) == [ours]
    assert tree.marked(MARKER, start.value[:-1]) == tree.marked(MARKER[1:], start.value) == []


def test_leftovers_are_marked_noted_and_below(start: Started) -> None:
    """A marked one, a noted one without marker, and the children of both; noted ones that ended are not among them."""
    marked = start("sh", "-c", "env -i sleep 120 & wait")
    noted = start("sh", "-c", "sleep 120 & wait", marked=False)
    gone = start("true", marked=False)
    start.processes[-1].wait()
    for parent in (marked, noted):
        eventually(lambda parent=parent: tree.below(parent.pid), "no child")  # type: ignore[misc]
    children = [*tree.below(marked.pid), *tree.below(noted.pid)]
    assert tree.leftovers(MARKER, start.value, [noted, gone]) == sorted([marked, noted, *children])


# --- Signals ---


def test_a_signal_reaches_the_one_that_is_meant(start: Started) -> None:
    """The very process is hit; afterwards it is gone, and that is said."""
    process = start("sleep", "120")
    assert tree.send_safely(process, signal.SIGTERM)
    assert start.processes[0].wait() == -signal.SIGTERM
    assert not tree.send_safely(process, signal.SIGTERM)


def test_a_successor_is_not_hit(start: Started) -> None:
    """A living process with the pid, but not the start time, is left alone."""
    process = start("sleep", "120")
    assert not tree.send_safely(ProcessId(process.pid, process.start - 1), signal.SIGKILL)
    tree.send([ProcessId(process.pid, process.start + 1)], signal.SIGKILL)
    assert tree.wait_gone([process], 0.05) == [process]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose a pid")
def test_a_reused_pid_is_not_hit(start: Started) -> None:
    """Once a pid has passed to another process, neither a signal nor a search for the first one finds that."""
    first = start("true")
    start.processes[0].wait()
    second = eventually(lambda: reuse(start, first), "the pid is not given again")
    assert not is_alive(first)
    assert not tree.send_safely(first, signal.SIGKILL)
    assert first not in tree.leftovers("NO_SUCH", "marker", [first])
    assert is_alive(second)


def reuse(start: Started, first: ProcessId) -> ProcessId | None:
    """Start a process with the pid of one that ended, unless somebody else is faster, or the clock has not ticked."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    process = start("sleep", "120", marked=False)
    if process.pid == first.pid and process.start != first.start:
        return process
    failed = start.processes.pop()
    failed.kill()
    failed.wait()
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_process_is_passed_over() -> None:
    """A process that may not be signalled is no error: False is the answer."""
    code = f"""if True:
        import os, sys
        from fairlead.base.identity import ProcessId
        from fairlead.conductor import tree
        os.setuid(65534)
        sys.exit(tree.send_safely(ProcessId({os.getpid()}, {start_of(os.getpid())}), 0))
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Ending ---


def test_waiting_ends_with_the_last(start: Started) -> None:
    """Who does not go in time is returned; once all are gone nobody is."""
    process = start("sleep", "120")
    assert tree.wait_gone([process], 0.02) == [process]
    tree.send([process], signal.SIGKILL)
    assert tree.wait_gone([process], 60.0) == []


def test_leftovers_are_ended(start: Started) -> None:
    """All that is left of a run is killed and seen to be gone; a second look finds nothing."""
    top = sleepers(start, 5)
    everybody = [top, *tree.below(top.pid)]
    assert tree.end_leftovers(MARKER, start.value, (), 60.0) == []
    assert all(map(is_gone, everybody))
    assert tree.end_leftovers(MARKER, start.value, (), 60.0) == []


def test_leftovers_do_not_outrun_their_end(start: Started, tmp_path: Path) -> None:
    """A keeper whose workers bear no marker gets no new one past: all are stopped before the first is killed."""
    witness = tmp_path / "witness"
    keeper = start(*agent("keep_bare", witness))
    written(witness)
    assert tree.end_leftovers(MARKER, start.value, (), 60.0) == []
    assert is_gone(keeper)
    escaped = [pid for pid in tree.all_pids() if str(witness).encode() in command_line(pid)]
    tree.send(tree.identify(escaped), signal.SIGKILL)
    assert escaped == []


def command_line(pid: int) -> bytes:
    """How a process was started; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_what_does_not_end_is_told(start: Started) -> None:
    """Without time to end it, what is left is returned."""
    top = sleepers(start, 1)
    assert top in tree.end_leftovers(MARKER, start.value, (), 0.0)


def test_what_is_found_is_killed_in_any_time(start: Started) -> None:
    """With hardly any time nobody is waited for, but whoever was found has got his signal."""
    top = sleepers(start, 1)
    tree.end_leftovers(MARKER, start.value, (), 1e-4)
    eventually(lambda: is_gone(top), "it was not killed")
