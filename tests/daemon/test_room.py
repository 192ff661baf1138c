"""A disk without room: nothing new is begun while there is less than the reserve, and nothing acknowledged is lost."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.instance import Home
from tests.support.patience import eventually, stays
from tests.support.small_disk import MEGABYTE, SmallDisk, small_disk

from fairlead.conductor.launcher import ProcessLauncher
from fairlead.queue.errors import StoreUnavailableError
from fairlead.queue.room import NoRoomError, Reserve, shortage
from fairlead.queue.states import Status

LONG = "until [ -e go ]; do sleep 0.02; done"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk that `home` will be on: asked for before it."""
    with small_disk(tmp_path / "home") as mounted:
        yield mounted


def little_room(disk: SmallDisk) -> None:
    disk.fill(leave=4 * MEGABYTE)


def few_names(disk: SmallDisk) -> None:
    disk.take_names(leave=200)


@pytest.mark.parametrize(
    ("shorten", "words"),
    [
        (little_room, " MiB are free at {home}, and limits.disk_reserve keeps back 6.4 MiB: make room there"),
        (few_names, "more files can be made at {home}, and limits.inode_reserve keeps back 400: remove some there"),
    ],
)
def test_below_the_reserve_nothing_new_is_begun(
    disk: SmallDisk, home: Home, shorten: Callable[[SmallDisk], None], words: str
) -> None:
    """Files wait in the spool, tasks in the queue, `submit` says why it refuses; all goes on when there is room."""
    words = words.format(home=home.path)
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    queued = home.submit(home.counted())
    shorten(disk)
    home.drop("dropped.json", home.counted(), user="bob")
    for _ in range(3):
        dispatcher.run_once()
    assert home.task(queued).status is Status.QUEUED
    assert [task.id for task in home.tasks()] == [queued]
    assert Path(home.paths.spool, "dropped.json").exists()
    assert [one for one in home.why(queued).obstacles if one.reason == "no_room" and words in one.detail]
    assert len(home.log("no_room")) == 1
    with pytest.raises(NoRoomError, match=r"nothing new is taken in now: .* limits\."):
        home.submit()
    disk.make_room()
    home.play(lambda: len(home.tasks()) == 2 and not home.active(), dispatcher, watchdog)
    assert len(home.starts()) == 2
    assert home.log("room_again")


def test_what_runs_can_end_while_nothing_new_is_begun(disk: SmallDisk, home: Home) -> None:
    """That is what the reserve is for: the end is recorded and archived out of it."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    running = home.submit(home.counted(LONG))
    home.play(lambda: home.task(running).status is Status.RUNNING, dispatcher, watchdog)
    little_room(disk)
    (home.path / "go").touch()
    home.play(lambda: home.task(running).archived, dispatcher, watchdog)
    assert home.task(running).status is Status.COMPLETED


def test_commands_say_that_there_is_no_room(disk: SmallDisk, home: Home) -> None:
    """`status` first of all, `doctor` as a failure, `submit` by its exit code; with services that go on."""
    home.up()
    little_room(disk)
    home.logged("no_room")
    assert home.cli("status").stdout.startswith("nothing new is begun: ")
    assert "keeps back 6.4 MiB" in home.cli("doctor", code=1).stdout
    refused = home.cli("submit", "--prompt", "true", code=6)
    assert "limits.disk_reserve keeps back 6.4 MiB" in refused.stderr
    disk.make_room()
    home.logged("room_again")
    home.wait_over(home.submit(home.counted()))


def test_a_reserve_of_nothing_keeps_nothing_back(disk: SmallDisk) -> None:
    """Zero turns it off; what cannot be looked at is no reason to stop."""
    disk.fill()
    disk.take_names()
    assert shortage(str(disk.path), Reserve(0, 0)) == ""
    assert shortage(str(disk.path), Reserve(1 << 40, 0)) != ""
    assert shortage(str(disk.path), Reserve(0, 1 << 40)) != ""
    assert shortage(str(disk.path / "nowhere"), Reserve(1 << 40, 1 << 40)) == ""


@pytest.mark.parametrize("exhaust", [SmallDisk.fill, SmallDisk.take_names])
def test_an_exhausted_disk_loses_nothing(disk: SmallDisk, home: Home, exhaust: Callable[[SmallDisk], None]) -> None:
    """Not one byte, or not one file: an end waits, what is queued waits, and all goes on without help."""
    home.configure(limits={"disk_reserve": 0, "inode_reserve": 0})
    services = home.up()
    running = home.submit(LONG, user="ann")
    home.wait_status(running, Status.RUNNING)
    waiting = home.submit(user="ann")
    exhaust(disk)
    with pytest.raises((OSError, StoreUnavailableError)):
        home.submit(user="bob")
    stays(lambda: home.task(running).status is Status.RUNNING, "the run is still known")
    disk.make_room()
    (home.path / "go").touch()
    home.wait_over(running, waiting)
    assert {home.task(one).status for one in (running, waiting)} == {Status.COMPLETED}
    assert [service.poll() for service in services] == [None, None]


def test_a_disk_that_can_only_be_read_loses_nothing(disk: SmallDisk, home: Home) -> None:
    """As the kernel makes it after an error: nobody is told yes, and all goes on once it can be written to again."""
    services = home.up()
    running = home.submit(LONG, user="ann")
    home.wait_status(running, Status.RUNNING)
    waiting = home.submit(user="ann")
    with disk.read_only():
        with pytest.raises((OSError, StoreUnavailableError)):
            home.submit(user="bob")
        stays(lambda: home.task(running).status is Status.RUNNING, "the run is still known")
    (home.path / "go").touch()
    home.wait_over(running, waiting)
    assert {home.task(one).status for one in (running, waiting)} == {Status.COMPLETED}
    assert [service.poll() for service in services] == [None, None]
    eventually(lambda: all(task.archived for task in home.tasks()), "all is archived")


class HeldLauncher(ProcessLauncher):
    """A launcher that keeps the requests until it is told to go on."""

    held: str = ""

    def launch(self, run_dir: str) -> None:
        """Keep it."""
        self.held = run_dir

    def go_on(self) -> None:
        """Hand it over."""
        super().launch(self.held)


def test_a_run_that_finds_no_room_at_the_last_moment_is_given_back(disk: SmallDisk, home: Home) -> None:
    """It counts as begun, and its agent cannot be started, nor can that be written down: it is not lost for that."""
    home.configure(limits={"disk_reserve": 0, "inode_reserve": 0, "start_attempts": 1})
    launcher = HeldLauncher(home.paths.error_log, home.paths.bells)
    dispatcher, watchdog = home.dispatcher(launcher), home.watchdog()
    task = home.submit(home.counted())
    dispatcher.run_once()
    launcher.start()
    eventually(lambda: os.path.exists(home.paths.error_log), "the spawner does not come up")
    disk.take_names(leave=1)
    launcher.go_on()
    eventually(lambda: home.meta(task).status == Status.RUNNING, "the run is not begun")
    for _ in range(5):
        watchdog.run_once()
    assert home.task(task).status is Status.CLAIMED
    disk.make_room()
    home.play(lambda: home.task(task).status is Status.QUEUED, None, watchdog)
    home.play(lambda: home.is_over(task), home.dispatcher(), watchdog)
    assert home.task(task).status is Status.COMPLETED
    assert home.starts() == [task]
