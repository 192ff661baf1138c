"""Two clocks: one for people, one for deadlines.

Wall time is for display and for `run_at`; it may jump. Deadlines use CLOCK_BOOTTIME, which goes on
while the machine sleeps and never jumps.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What the core asks for the time, so that tests can turn it by hand."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def boot(self) -> float:
        """Seconds since this machine started, sleep included."""


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def boot(self) -> float:
        """Seconds since this machine started, sleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def moment(ms: int | None) -> str:
    """Wall milliseconds for people: UTC, to the second."""
    text = iso(ms)
    return f"{text[:19]}Z" if text else ""


def iso(ms: int | None) -> str | None:
    """Render wall milliseconds as UTC ISO-8601 with milliseconds; nothing stays nothing.

    Written with the time module alone: datetime would cost every short command its start-up.
    """
    if ms is None:
        return None
    seconds, rest = divmod(ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}+00:00"
