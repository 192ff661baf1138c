"""Long-running processes: one of a kind, and asleep until woken."""

import os
import select
import signal
from pathlib import Path

import pytest
from tests.support.programs import heard, run, started

from fairlead.base.bell import ring
from fairlead.base.service import AlreadyRunningError, Single, Waiter


def test_there_is_one_of_a_kind(tmp_path: Path) -> None:
    """A second process is refused with the first one's pid, and let in after the first one was killed."""
    path = tmp_path / "daemon.lock"
    with started("base", "be_single", path) as first:
        assert run("base", "be_single", path) == (
            f"The tester runs already for this instance, with pid {first.pid}: "
            f"leave the work to it, or stop it first with `kill {first.pid}`.\n"
        )
        first.kill()
        first.wait()
        with started("base", "be_single", path) as second:
            assert path.read_text() == f"{second.pid}\n"


def test_a_predecessor_on_its_way_out_is_waited_for(tmp_path: Path) -> None:
    """Who starts while the other one still ends gets the lock a moment later."""
    path = str(tmp_path / "daemon.lock")
    with started("base", "be_single", path) as first:
        single = Single(path, "The tester")
        with pytest.raises(AlreadyRunningError):
            single.take(patience=0.0)
        assert first.stdin
        first.stdin.close()
        single.take(patience=60.0)
    single.release()
    again = Single(path, "The tester")
    again.take(patience=0.0)
    again.release()


def test_a_ring_ends_the_sleep(tmp_path: Path) -> None:
    """The words of all rings come back at once; without any the time passes."""
    waiter = Waiter(str(tmp_path), "daemon")
    assert waiter.wait(0.0) == set()
    assert waiter.wait(-1.0) == set()
    assert waiter.wait(0.001) == set()
    ring(str(tmp_path), "daemon", "added")
    assert waiter.wait(60.0) == {"added"}
    waiter.close()
    assert os.listdir(tmp_path) == []


def test_a_watched_descriptor_ends_the_sleep(tmp_path: Path) -> None:
    """Whatever else has something to read wakes too."""
    waiter = Waiter(str(tmp_path), "daemon")
    reader, writer = os.pipe()
    waiter.watch(reader)
    os.write(writer, b"x")
    assert waiter.wait(60.0) == set()
    assert select.select([reader], [], [], 0)[0]
    waiter.close()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("what", ["bell", "directory"])
def test_a_bell_that_was_tidied_away_is_hung_up_anew(tmp_path: Path, what: str) -> None:
    """Until then rings are lost; one that is in its place stays the same."""
    bells = tmp_path / "bells"
    bells.mkdir()
    waiter = Waiter(str(bells), "daemon")
    before = waiter.listener.fileno()
    waiter.keep_bell()
    assert waiter.listener.fileno() == before
    (bells / "daemon").unlink()
    if what == "directory":
        bells.rmdir()
    assert not ring(str(bells), "daemon", "lost")
    waiter.keep_bell()
    assert ring(str(bells), "daemon", "added")
    assert waiter.wait(60.0) == {"added"}
    waiter.close()


def test_signals_wake_and_are_remembered(tmp_path: Path) -> None:
    """HUP asks for a reload, TERM for the end; a ring is no signal."""
    with started("base", "wait_for_signals", tmp_path) as process:
        process.send_signal(signal.SIGHUP)
        assert heard(process) == "asked to reload"
        ring(str(tmp_path), "tester", "added")
        assert heard(process) == "rung: added"
        process.send_signal(signal.SIGTERM)
        assert heard(process) == "asked to stop"
        assert process.wait() == 0


def test_a_request_before_the_sleep_is_not_slept_over(tmp_path: Path) -> None:
    """A flag that is already set makes the wait return at once."""
    waiter = Waiter(str(tmp_path), "daemon")
    waiter.asked_to_reload = True
    assert waiter.wait(1e6) == set()
    waiter.close()


def test_a_sleep_of_any_length_can_be_asked_for(tmp_path: Path) -> None:
    """The kernel's milliseconds end after 25 days; a longer interval is slept in portions."""
    waiter = Waiter(str(tmp_path), "daemon")
    ring(str(tmp_path), "daemon", "added")
    assert waiter.wait(1e9) == {"added"}
    waiter.close()
