"""Time, and waiting for something to become true."""

import time
from collections.abc import Callable

_PAUSE = 0.01


def boottime() -> float:
    """Seconds since this machine started: the clock that never jumps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Look until it is true, at most so long; whether it became so."""
    deadline = boottime() + seconds
    while not condition():
        if boottime() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True
