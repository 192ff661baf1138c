"""The process launcher: how the daemon has supervisors started, and what it learns when its spawner dies."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.conductor.runs import Place, running, shell, state
from tests.support.patience import PATIENCE, eventually

from fairlead.conductor import launcher as launching
from fairlead.conductor import tree
from fairlead.conductor.launcher import ProcessLauncher, SpawnerGoneError
from fairlead.conductor.liveness import Void, void


@pytest.fixture
def launcher(place: Place) -> Iterator[ProcessLauncher]:
    """A launcher whose spawners are ended afterwards, with all that they have started."""
    launcher = ProcessLauncher(str(place.path / "errors"), str(place.bells))
    yield launcher
    kill(launcher)


def kill(launcher: ProcessLauncher) -> None:
    """Kill the spawner, if there is one, with everything below it."""
    if launcher.pid is not None:
        everybody = [*tree.identify([launcher.pid]), *tree.below(launcher.pid)]
        tree.send(everybody, signal.SIGKILL)
        tree.wait_gone(everybody, PATIENCE)


def play(place: Place, launcher: ProcessLauncher) -> None:
    """A run from launch to end."""
    run_dir = place.make(("/bin/true",))
    launcher.launch(run_dir)
    eventually(lambda: (meta := state(run_dir)) is not None and meta.ended, "it does not end")


@pytest.mark.parametrize("early", [True, False])
def test_one_spawner_is_started(place: Place, launcher: ProcessLauncher, *, early: bool) -> None:
    """It is started when so told, or by the first launch; the next ones use it."""
    assert (launcher.pid, launcher.died) == (None, False)
    if early:
        launcher.start()
        assert launcher.pid is not None
    play(place, launcher)
    first = launcher.pid
    play(place, launcher)
    launcher.start()
    assert (launcher.pid, launcher.died) == (first, False)


def test_letting_go_ends_nothing(place: Place, launcher: ProcessLauncher) -> None:
    """When the daemon closes its launcher, a run goes on to its end, and then the spawner ends."""
    run_dir = place.make(shell("while [ ! -e go ]; do sleep 0.01; done"))
    launcher.launch(run_dir)
    running(run_dir)
    [spawner] = tree.identify([launcher.pid or 0])
    launcher.close()
    assert launcher.pid is None
    (place.work / "go").touch()
    eventually(lambda: (meta := state(run_dir)) is not None and meta.status == "completed", "it does not end")
    assert tree.wait_gone([spawner], PATIENCE) == []
    launcher.close()


def test_a_killed_spawner_is_noticed_and_replaced(place: Place, launcher: ProcessLauncher) -> None:
    """A launch after a kill -9 says that the spawner is gone, its run can be taken back, and the next one is played."""
    play(place, launcher)
    first = launcher.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: launcher.died, "its death is not seen")
    run_dir = place.make(shell("true"))
    with pytest.raises(SpawnerGoneError, match="the spawner is gone"):
        launcher.launch(run_dir)
    assert void(run_dir) is Void.NEVER_STARTED
    play(place, launcher)
    assert launcher.pid not in {None, first}
    assert not launcher.died


def test_a_spawner_that_does_not_listen_is_given_up(
    place: Place, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spawner that takes no requests does not hold the daemon up for ever; the next launch has a new one."""
    monkeypatch.setattr(launching, "PATIENCE", 0.2)
    play(place, launcher)
    stopped = launcher.pid
    assert stopped is not None
    [spawner] = tree.identify([stopped])
    os.kill(stopped, signal.SIGSTOP)
    try:
        with pytest.raises(SpawnerGoneError, match="timed out"):
            flood(launcher)
        play(place, launcher)
    finally:
        tree.send([spawner], signal.SIGKILL)


def flood(launcher: ProcessLauncher) -> None:
    """More requests than a socket holds."""
    for _ in range(100_000):
        launcher.launch("/nowhere/" + "x" * 4000)


@pytest.mark.parametrize("errors", ["nowhere/errors", "."])
def test_a_spawner_that_cannot_be_started_is_told(place: Place, errors: str) -> None:
    """If not even the error log can be opened, the launch fails by name, and may be tried again."""
    launcher = ProcessLauncher(str(place.path / errors), str(place.bells))
    for _ in range(2):
        with pytest.raises(SpawnerGoneError, match="cannot be started"):
            launcher.launch("/nowhere")
    assert launcher.pid is None


def test_what_the_spawner_says_is_kept(place: Place, launcher: ProcessLauncher) -> None:
    """Errors are added to the log, and what stood there before stays."""
    (place.path / "errors").write_text("before\n")
    play(place, launcher)
    assert (place.path / "errors").read_text() == "before\n"
