"""Asking a porter: what his answers mean, and that whoever is not answered does not ask twice."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from fairlead.base import frames
from fairlead.conductor import errands
from fairlead.conductor.errands import Done, Failed, Names
from fairlead.conductor.porter import ClerkError, Porter, PorterError, refusal, run_errand
from fairlead.systemd.unit import NoManagerError, NotStartedError, Order, Started, State, UnitExistsError

NAME = "fairlead-run-x.1.service"
ORDER = Order(name=NAME, description="", argv=("/bin/true",), cwd="/", env={"A": "b"}, user="ann")

Say = Callable[[socket.socket], None]


class Desk:
    """A desk that does with each request what it was told to, one after the other."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.heard: list[errands.Request] = []
        self.fds = 0
        self.lines = 0
        self.script: list[Say] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(path)
        self._door.listen()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                line, _ = self._door.accept()
            except OSError:
                return
            self.lines += 1
            with line:
                self._serve(line)

    def _serve(self, line: socket.socket) -> None:
        try:
            while True:
                data, fds = frames.receive(line, errands.LONGEST)
                self.heard.append(errands.decode_request(data))
                self.fds += len(fds)
                frames.close_all(fds)
                self.script.pop(0)(line)
        except (ConnectionError, BrokenPipeError, ValueError):
            return

    def close(self) -> None:
        """Nobody is heard any more."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join(10.0)


def answer(what: errands.Answer) -> Say:
    """Say this."""
    return lambda line: frames.send(line, errands.encode(what))


def hang_up(line: socket.socket) -> None:
    """Say nothing, and go."""
    line.shutdown(socket.SHUT_WR)


def hang_up_in_the_middle(line: socket.socket) -> None:
    """Say half of it, and go."""
    line.send(b"\0\0\0\xff\x81")
    line.shutdown(socket.SHUT_WR)


def nonsense(line: socket.socket) -> None:
    """Say what nobody understands."""
    frames.send(line, b"\xc1")


def too_much(line: socket.socket) -> None:
    """Announce more than anybody listens to."""
    line.send((errands.LONGEST + 1).to_bytes(4, "big"))


def nothing(_: socket.socket) -> None:
    """Say nothing, and stay."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk."""
    with closing(Desk(str(tmp_path / "porter.sock"))) as desk:
        yield desk


@pytest.fixture
def porter(desk: Desk) -> Iterator[Porter]:
    """A way to it, with little patience."""
    with closing(Porter(desk.path, patience=0.5)) as porter:
        yield porter


def test_every_answer_reaches_whoever_asked(desk: Desk, porter: Porter) -> None:
    """One line serves all requests, and descriptors go along where they belong."""
    state = State(active="active", sub="exited", code=1, status=3, pid=7, cgroup="/x", is_fence=True)
    desk.script = [
        answer(one)
        for one in (
            Started(pid=7, cgroup="/x"),
            state,
            Done(),
            Done(),
            Done(was_free=False),
            Names(["a"]),
            Names(["b"]),
        )
    ]
    assert porter.start(ORDER, (0, 1, 2)) == Started(pid=7, cgroup="/x")
    assert porter.state(NAME) == state
    porter.signal(NAME, 15)
    porter.forget(NAME)
    assert porter.fence(NAME) is False
    assert porter.names() == ["a"]
    assert porter.make_spools() == ["b"]
    assert desk.heard == [
        errands.StartUnit(ORDER),
        errands.AskState(NAME),
        errands.SignalUnit(NAME, 15),
        errands.ForgetUnit(NAME),
        errands.FenceUnit(NAME),
        errands.ListUnits(),
        errands.MakeSpools(),
    ]
    assert (desk.lines, desk.fds) == (1, 3)


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (Failed("exists", "there is one"), UnitExistsError),
        (Failed("not_started", "", 203), NotStartedError),
        (Failed("no_manager", "no bus"), NoManagerError),
        (Failed("refused", "no"), PorterError),
        (Failed("whatever comes later", "no"), PorterError),
    ],
)
def test_a_refusal_is_the_error_that_was_met(
    desk: Desk, porter: Porter, failed: Failed, error: type[Exception]
) -> None:
    """With its words, and systemd's number; the line is as good as before."""
    desk.script = [answer(failed), answer(Done())]
    with pytest.raises(error) as raised:
        porter.start(ORDER, (0, 1, 2))
    assert failed.error in str(raised.value)
    if isinstance(raised.value, NotStartedError):
        assert raised.value.is_without_program
    porter.forget(NAME)
    assert desk.lines == 1


def test_an_answer_to_another_question_is_none(desk: Desk, porter: Porter) -> None:
    """Nobody knows then what became of the request."""
    desk.script = [answer(Names([]))]
    with pytest.raises(NoManagerError, match="the porter answered Names"):
        porter.start(ORDER, (0, 1, 2))


@pytest.mark.parametrize("say", [hang_up, hang_up_in_the_middle, nonsense, too_much, nothing])
def test_what_was_not_answered_is_not_asked_twice(desk: Desk, porter: Porter, say: Say) -> None:
    """It is said that there was no answer; the next request takes a new line."""
    desk.script = [say, answer(Done())]
    with pytest.raises(NoManagerError, match="does not answer"):
        porter.start(ORDER, (0, 1, 2))
    porter.forget(NAME)
    assert desk.heard == [errands.StartUnit(ORDER), errands.ForgetUnit(NAME)]
    assert desk.lines == 2


def test_without_a_porter_that_is_said(tmp_path: Path) -> None:
    """At once, and again with every request."""
    porter = Porter(str(tmp_path / "nobody.sock"))
    for _ in range(2):
        with pytest.raises(NoManagerError, match="No such file or directory"):
            porter.names()
    porter.close()


def test_orders_that_are_too_long_are_not_sent(desk: Desk, porter: Porter) -> None:
    """Whoever receives them would hang up, and it would be tried for ever."""
    order = Order(name=NAME, description="", argv=("x" * errands.LONGEST,), cwd="/", env={})
    with pytest.raises(errands.TooLongError, match="too long to be handed on"):
        porter.start(order, (0, 1, 2))
    assert desk.heard == []


def test_nobody_is_left_hanging_on_when_hiring_fails(desk: Desk, porter: Porter) -> None:
    """Neither end of the line that was meant for a clerk stays open."""
    before = len(os.listdir("/proc/self/fd"))
    desk.script = [answer(Failed("refused", "no")), hang_up]
    for error in (PorterError, NoManagerError):
        with pytest.raises(error):
            porter.hire("ann")
    porter.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the desk's own end may be about to go
    assert desk.fds == 2


# --- Clerks ---


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (hang_up, "hung up"),
        (hang_up_in_the_middle, "hung up"),
        (nonsense, "what nobody understands"),
        (too_much, "at most"),
        (nothing, "timed out"),
    ],
)
def test_a_clerk_who_brings_nothing_is_told_of(say: Say, why: str) -> None:
    """Whatever it is that he does instead."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0.2)
    with ours, theirs:
        say(theirs)
        with pytest.raises(ClerkError, match=why):
            run_errand(ours, errands.Clear("x.1"))


@pytest.mark.parametrize("reply", [errands.Fine(), errands.Left(), None])
def test_what_a_clerk_brings_unasked_is_thrown_away(reply: errands.Reply | None) -> None:
    """Descriptors that belong to no reply are closed."""
    ours, theirs = socket.socketpair()
    before = len(os.listdir("/proc/self/fd"))
    with ours, theirs:
        frames.send(theirs, errands.encode(reply) if reply else b"\xc1", [0, 1, 2])
        if reply:
            assert run_errand(ours, errands.Clear("x.1")) == (reply, [])
        else:
            with pytest.raises(ClerkError):
                run_errand(ours, errands.Clear("x.1"))
        assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_clerk_could_not_do_is_the_error_that_he_met() -> None:
    """By its number where it has one, with the path; else in his words."""
    error = refusal(errands.Refused(13, "Permission denied", "/x"))
    assert isinstance(error, PermissionError)
    assert (error.errno, error.filename) == (13, "/x")
    assert str(refusal(errands.Refused(0, "no"))) == "no"
    assert str(refusal(errands.Fine())) == "a clerk brought Fine"
