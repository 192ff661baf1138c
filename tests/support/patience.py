"""Looking until something is true, so that no test sleeps for a fixed time."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

#: Long enough for a loaded machine; nobody waits that long when all is well.
PATIENCE = 60.0
_PAUSE = 0.005

T = TypeVar("T")


def eventually(look: Callable[[], T | Literal[False] | None], what: str, seconds: float = PATIENCE) -> T:
    """Look until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(_PAUSE)
    return answer


def stays(look: Callable[[], bool], what: str, seconds: float = 0.3) -> None:
    """Look for a while, and see that nothing changes the answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert look(), f"it did not stay so: {what}"
        time.sleep(_PAUSE)
