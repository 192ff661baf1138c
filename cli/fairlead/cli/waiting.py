"""Waiting without polling: commands listen to the same bells as daemon and watchdog."""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.base.bell import Listener, is_heard
from fairlead.base.clock import SystemClock
from fairlead.base.files import make_directory
from fairlead.cli.output import note
from fairlead.config.paths import Paths
from fairlead.queue.services import how_to_start

#: A ring may be lost: look again at least this often.
LOOK_AGAIN = 2.0
_STDOUT = 1
_GONE = select.POLLERR | select.POLLHUP


@contextmanager
def listening(bells: str, what: str) -> Iterator[Listener]:
    """A bell of this command's own."""
    make_directory(bells)
    listener = Listener(bells, f"{what}-{os.getpid()}")
    try:
        yield listener
    finally:
        listener.close()


def wait_until(bells: str, what: str, done: Callable[[], bool], timeout: float | None = None) -> bool:
    """Wait until `done` says so, looking whenever somebody rings; False if the time was up first."""
    clock = SystemClock()
    deadline = float("inf") if timeout is None else clock.boot() + timeout
    # The bell hangs before the first look: what happens between look and sleep is heard.
    with listening(bells, what) as listener:
        while not done():
            rest = deadline - clock.boot()
            if rest <= 0:
                return False
            select.select([listener], [], [], min(rest, LOOK_AGAIN))
            listener.take()
    return True


def follow(bells: str, what: str, look: Callable[[], bool], look_again: float = LOOK_AGAIN) -> None:
    """Look whenever somebody rings, as long as `look` wants to go on and somebody reads our output."""
    poll = select.poll()
    poll.register(_STDOUT, 0)  # nothing is asked of it, but its end is told
    with listening(bells, what) as listener:
        poll.register(listener, select.POLLIN)
        while look():
            ready = dict(poll.poll(look_again * 1000))
            if ready.get(_STDOUT, 0) & _GONE:
                raise BrokenPipeError
            listener.take()


def tell_of_stopped(paths: Paths, *names: str) -> None:
    """Say which services do not run, to whoever waits for their work."""
    for name in names:
        if not is_heard(paths.bells, name):
            note(f"no {name} runs for {paths.home}; {how_to_start(paths.bells, name)}")
