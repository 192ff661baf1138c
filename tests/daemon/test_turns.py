"""Users take turns with what they have dropped: one who has dropped much keeps nobody from a clerk."""

import math
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.conductor.porter import Porter
from fairlead.daemon import deliveries as module
from fairlead.daemon.deliveries import Deliveries
from fairlead.porter.clerk import Clerk
from fairlead.queue.admit import Admission


class OwnPorter(Porter):
    """A porter whose clerks are children of ours, and stay who they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__("nowhere")
        self.folder = folder
        self.hired: list[str] = []
        self.pids: list[int] = []

    def hire(self, user: str) -> socket.socket:
        """A line to a new clerk."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            Clerk(str(self.folder / user)).serve(theirs)
            os._exit(0)
        theirs.close()
        self.hired.append(user)
        self.pids.append(pid)
        return ours


class Intake:
    """Deliveries from spools of users, and their way into the store."""

    def __init__(self, home: Home, folder: Path) -> None:
        instance = home.open()
        self.config = instance.config
        self.porter = OwnPorter(folder)
        self.deliveries = Deliveries(str(folder), self.porter, instance.store, instance.clock, instance.log)
        self.admission = Admission(home.paths, instance.config, instance.store, instance.clock, instance.log)
        self.store = instance.store

    def pass_once(self) -> None:
        files = self.deliveries.collect(self.admission, self.config)
        self.deliveries.settle(files, self.admission.admit(files))

    def work(self, done: Callable[[], bool]) -> None:
        """Pass after pass, until it is done."""

        def look() -> bool:
            self.pass_once()
            return done()

        eventually(look, "some wait for ever")

    def close(self) -> None:
        self.deliveries.close()
        for pid in self.porter.pids:
            os.waitpid(pid, 0)


@pytest.fixture
def intake(home: Home, tmp_path: Path) -> Iterator[Intake]:
    folder = tmp_path / "spools"
    for user, count in (("ann", 60), ("bob", 1)):
        (folder / user).mkdir(parents=True)
        for number in range(count):
            document = f'{{"prompt": "true", "user": "{user}"}}'
            (folder / user / f"{number}.json").write_text(document)
    made = Intake(home, folder)
    made.deliveries.look_around()
    yield made
    made.close()


def entered(home: Home, user: str) -> int:
    return sum(task.spec.user == user for task in home.tasks())


def test_whoever_has_had_his_turn_makes_way(intake: Intake, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one clerk for all, somebody with one file does not wait for all sixty of another; nothing is lost."""
    monkeypatch.setattr(module, "MOST_SESSIONS", 1)
    monkeypatch.setattr(module, "TURN", 0.0)
    monkeypatch.setattr(module, "SHARE", 2)

    intake.work(lambda: entered(home, "bob") == 1)
    assert entered(home, "ann") < 60
    intake.work(lambda: entered(home, "ann") == 60)
    assert intake.porter.hired[:3] == ["ann", "bob", "ann"]


def test_in_company_a_flood_rests_between_its_deliveries(
    intake: Intake, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the machine is the others'; alone, it does not."""
    monkeypatch.setattr(module, "SHARE", 2)
    monkeypatch.setattr(module, "REST", 1e9)
    intake.work(lambda: entered(home, "bob") == 1)
    assert entered(home, "ann") < 60
    session = intake.deliveries.sessions["ann"]
    intake.work(lambda: math.inf > intake.deliveries.next_at > session.received + 60)
    assert entered(home, "ann") < 60
    intake.deliveries.places["bob"].visited = 0.0
    session.rests_until = 0.0
    monkeypatch.setattr(module, "RECENT", 0.0)
    intake.work(lambda: entered(home, "ann") == 60)


def test_without_room_clerks_go_and_come_again(intake: Intake, home: Home) -> None:
    """What was handed over and not entered is handed over again."""
    eventually(lambda: intake.deliveries.collect(intake.admission, intake.config), "nothing is handed over")
    intake.deliveries.leave()
    assert intake.deliveries.sessions == {}
    intake.work(lambda: len(home.tasks()) == 61)
    assert len({task.id for task in home.tasks()}) == 61
