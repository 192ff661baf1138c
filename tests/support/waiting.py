"""Waiting for something to become true, or watching that it stays so."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

#: Long enough for a loaded machine; nobody waits that long when all is well.
PATIENCE = 60.0

T = TypeVar("T")


def eventually(look: Callable[[], T | Literal[False] | None], what: str, seconds: float = PATIENCE) -> T:
    """Look until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.005)
    return answer


def stays(look: Callable[[], object], what: str, seconds: float = 1.0) -> None:
    """Look for a while, and fail as soon as it is not true any more."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert look(), f"it did not stay so: {what}"
        time.sleep(0.005)
