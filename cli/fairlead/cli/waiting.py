"""Waiting without polling: commands listen to the same bells as daemon and watchdog, or have the service tell them."""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fairlead.base.bell import Listener, is_heard
from fairlead.base.clock import SystemClock
from fairlead.base.files import make_directory
from fairlead.cli.output import note
from fairlead.desk.desk import Desk
from fairlead.queue.services import how_to_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk
    from fairlead.cli.remote import Remote

#: A ring may be lost: look again at least this often.
LOOK_AGAIN = 2.0
_STDOUT = 1
_GONE = select.POLLERR | select.POLLHUP


class Ear(Protocol):
    """Hears that something has happened since it was made."""

    def wait(self, seconds: float) -> None:
        """Wait until something happens, or the time is up."""


class _Bell:
    """A bell of this command's own."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(_STDOUT, 0)  # nothing is asked of it, but its end is told
        poll.poll(seconds * 1000)
        self._listener.take()


class _Call:
    """The service, which answers when something has happened."""

    def __init__(self, remote: "Remote") -> None:
        self._remote = remote
        self._last = remote.event_before(0)

    def wait(self, seconds: float) -> None:
        self._last = self._remote.wait_for_event(self._last, seconds)


@contextmanager
def listening(desk: "AnyDesk", what: str) -> Iterator[Ear]:
    """Hear what happens from now on."""
    if not isinstance(desk, Desk):
        yield _Call(desk)
        return
    bells = desk.office.paths.bells
    make_directory(bells)
    listener = Listener(bells, f"{what}-{os.getpid()}")
    try:
        yield _Bell(listener)
    finally:
        listener.close()


def wait_until(desk: "AnyDesk", what: str, done: Callable[[], bool], timeout: float | None = None) -> bool:
    """Wait until `done` says so, looking whenever something happens; False if the time was up first."""
    clock = SystemClock()
    deadline = float("inf") if timeout is None else clock.boot() + timeout
    # Listening begins before the first look: what happens between look and sleep is heard.
    with listening(desk, what) as ear:
        while not done():
            rest = deadline - clock.boot()
            if rest <= 0:
                return False
            ear.wait(min(rest, LOOK_AGAIN))
    return True


def follow(desk: "AnyDesk", what: str, look: Callable[[], bool], look_again: float = LOOK_AGAIN) -> None:
    """Look whenever something happens, as long as `look` wants to go on and somebody reads our output."""
    with listening(desk, what) as ear:
        while look():
            ear.wait(look_again)
            if _nobody_reads():
                raise BrokenPipeError


def _nobody_reads() -> bool:
    poll = select.poll()
    poll.register(_STDOUT, 0)
    return any(event & _GONE for _, event in poll.poll(0))


def tell_of_stopped(desk: "AnyDesk", *names: str) -> None:
    """Say which services do not run, to whoever waits for their work."""
    if isinstance(desk, Desk):
        paths = desk.office.paths
        stopped = [name for name in names if not is_heard(paths.bells, name)]
    else:
        paths, status = desk.paths, desk.status()
        stopped = [name for name in names if not status[name]]
    for name in stopped:
        note(f"no {name} runs for {paths.home}; {how_to_start(paths, name)}")
