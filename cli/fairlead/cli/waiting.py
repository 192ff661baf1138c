"""Waiting without polling: commands listen to the same bells as daemon and watchdog."""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.base.bell import Listener
from fairlead.base.clock import SystemClock
from fairlead.base.files import make_directory

#: A ring may be lost: look again at least this often.
LOOK_AGAIN = 2.0


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
