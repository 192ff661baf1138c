"""Clocks: one for people, one for deadlines."""

import time
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fairlead.base.clock import SystemClock, iso

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_the_clocks_are_the_machines() -> None:
    """Wall time is that of everybody, boot time that of the kernel, in seconds."""
    clock = SystemClock()
    before, wall, after = time.time(), clock.wall_ms(), time.time()
    assert int(before * 1000) <= wall <= after * 1000
    before, boot, after = (
        time.clock_gettime(time.CLOCK_BOOTTIME),
        clock.boot(),
        time.clock_gettime(time.CLOCK_BOOTTIME),
    )
    assert before <= boot <= after


def test_a_moment_is_written_in_utc() -> None:
    """The form is ISO-8601 with milliseconds and the offset; nothing stays nothing."""
    assert iso(1_790_000_000_007) == "2026-09-21T14:13:20.007+00:00"
    assert iso(0) == "1970-01-01T00:00:00.000+00:00"
    assert iso(None) is None


@given(st.integers(min_value=-30_000_000_000_000, max_value=250_000_000_000_000))
def test_every_moment_can_be_read_back(ms: int) -> None:
    """Python's own datetime reads the same moment, to the millisecond."""
    text = iso(ms)
    assert text is not None
    assert datetime.fromisoformat(text) - EPOCH == timedelta(milliseconds=ms)
