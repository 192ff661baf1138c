"""Bells: one process wakes another at once, whatever became of the others."""

import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.programs import run, started

from fairlead.base.bell import Listener, _clear, is_heard, ring, ring_all
from fairlead.base.files import names_in

Listen = Callable[[str], Listener]


@pytest.fixture(params=["short", "long"])
def bells(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory for bells: near by, and one whose path is longer than a socket's address may be."""
    path = tmp_path if request.param == "short" else tmp_path / ("x" * 120) / ("y" * 120)
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


@pytest.fixture
def listen(bells: str) -> Iterator[Listen]:
    """Makes listeners that are closed after the test."""
    made: list[Listener] = []

    def listener(name: str) -> Listener:
        made.append(Listener(bells, name))
        return made[-1]

    yield listener
    for one in made:
        one.close()


def is_ringing(listener: Listener) -> bool:
    return bool(select.select([listener], [], [], 0)[0])


def test_a_ring_wakes_its_listener(bells: str, listen: Listen) -> None:
    """The descriptor becomes readable, the words are taken once, and others sleep on."""
    daemon, watchdog = listen("daemon"), listen("watchdog")
    assert not is_ringing(daemon)
    assert ring(bells, "daemon", "ended") is True
    assert ring(bells, "daemon", "added") is True
    assert is_ringing(daemon)
    assert not is_ringing(watchdog)
    assert daemon.take() == {"ended", "added"}
    assert not is_ringing(daemon)
    assert daemon.take() == set()


def test_a_ring_without_a_word_wakes_too(bells: str, listen: Listen) -> None:
    """An empty datagram is a ring."""
    daemon = listen("daemon")
    ring(bells, "daemon")
    assert daemon.take() == {""}


def test_nobody_hears_a_bell_that_is_not_there(bells: str) -> None:
    """Who rings is told that nobody listens; a directory that is missing is no error."""
    assert ring(bells, "daemon") is False
    assert is_heard(bells, "daemon") is False
    ring_all(os.path.join(bells, "missing"))


def test_whether_somebody_listens_can_be_asked_in_silence(bells: str, listen: Listen) -> None:
    """Asking wakes nobody."""
    daemon = listen("daemon")
    assert is_heard(bells, "daemon") is True
    assert not is_ringing(daemon)


def test_all_are_rung_but_one(bells: str, listen: Listen) -> None:
    """Two hundred listeners hear the word; the one who rings is left out."""
    everybody = [listen(f"listener-{number}") for number in range(200)]
    ring_all(bells, "look", but="listener-7")
    assert [one.take() for one in everybody] == [set() if n == 7 else {"look"} for n in range(200)]


def test_the_bells_of_the_dead_are_cleared_away(bells: str, listen: Listen) -> None:
    """A killed process leaves its bell behind; the next ring for all removes it and no other."""
    alive = listen("alive")
    with started("base", "listen", bells, "dead") as process:
        assert is_heard(bells, "dead") is True
        process.kill()
        process.wait()
        assert names_in(bells) == ["alive", "dead"]
        assert is_heard(bells, "dead") is False
        assert ring(bells, "dead") is False
    ring_all(bells, "look")
    assert names_in(bells) == ["alive"]
    assert alive.take() == {"look"}


def test_a_successor_takes_the_place_of_the_dead(bells: str, listen: Listen) -> None:
    """A name that a dead process left behind can be used at once."""
    with started("base", "listen", bells, "daemon") as process:
        process.kill()
    daemon = listen("daemon")
    assert ring(bells, "daemon", "again") is True
    assert daemon.take() == {"again"}


def test_a_successor_is_never_taken_for_the_dead(tmp_path: Path) -> None:
    """Others who clear dead bells away at the same moment do not remove the successor's."""
    assert run("base", "restart_while_ringing", tmp_path, 5000) == "0\n"


def test_who_came_back_is_not_cleared_away(bells: str, listen: Listen) -> None:
    """Before a bell is removed it is tried once more."""
    listen("daemon")
    _clear(bells, ["daemon", "dead"])
    assert names_in(bells) == ["daemon"]


def test_a_full_queue_neither_blocks_nor_counts_as_dead(bells: str, listen: Listen) -> None:
    """Who does not listen for long is not waited for, keeps its bell, and finds the rings that fitted."""
    daemon = listen("daemon")
    for number in range(2000):
        assert ring(bells, "daemon", str(number)) is True
    ring_all(bells, "more")
    assert names_in(bells) == ["daemon"]
    words = daemon.take()
    assert "0" in words
    assert len(words) < 2000


def test_a_word_that_is_too_long_is_cut(bells: str, listen: Listen) -> None:
    """The ring is what counts."""
    daemon = listen("daemon")
    assert ring(bells, "daemon", "é" * 5000) is True
    assert daemon.take() == {"é" * 2048}


def test_something_else_among_the_bells_stops_nobody(tmp_path: Path) -> None:
    """A socket of another kind is neither rung nor removed, and the listeners behind it are rung."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.bind(str(tmp_path / "another-kind"))
        stream.listen()
        with_bell = Listener(str(tmp_path), "daemon")
        ring_all(str(tmp_path), "look")
        assert with_bell.take() == {"look"}
        assert names_in(str(tmp_path))[0] == "another-kind"
        with_bell.close()


def test_closing_removes_the_bell(bells: str) -> None:
    """Who goes in order leaves nothing behind."""
    Listener(bells, "daemon").close()
    assert names_in(bells) == []


def test_ringing_keeps_no_descriptor_open(bells: str, listen: Listen) -> None:
    """However often it is rung, and however long the path is."""
    daemon = listen("daemon")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        ring(bells, "daemon")
        ring_all(bells)
        ring(bells, "nobody")
        daemon.take()
    assert len(os.listdir("/proc/self/fd")) == before
