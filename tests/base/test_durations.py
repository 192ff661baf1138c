"""Durations: what people write, and what they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.base.durations import parse_duration, show_duration
from fairlead.base.errors import UsageError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("1.5h", 5400),
        (" 1H ", 3600),
    ],
)
def test_durations_are_read(written: float | str, seconds: float) -> None:
    """Seconds as a number or a text, and units one after another."""
    read = parse_duration(written)
    assert read == seconds
    assert isinstance(read, float)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "1x",
        "1h 30m",
        "-1",
        "-1s",
        "1:30",
        "h",
        "1h30",
        "1e3",
        "inf",
        "nan",
        "9" * 400 + "s",
        -1,
        float("inf"),
        float("nan"),
        10**400,
        1e10,
        True,
    ],
)
def test_what_is_no_duration_is_refused(written: float | str) -> None:
    """The message quotes what was written and says that it is no duration."""
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (1, "1s"),
        (2.5, "2.5s"),
        (59.94, "59.9s"),
        (60, "1m"),
        (90.9, "1m30s"),
        (3600, "1h"),
        (3661, "1h1m"),
        (90061, "1d1h"),
        (604800, "1w"),
        (86400 * 365, "52w1d"),
    ],
)
def test_durations_are_shown(seconds: float, shown: str) -> None:
    """Two units at most, and none that is nothing."""
    assert show_duration(seconds) == shown


@given(st.integers(min_value=1, max_value=10**9))
def test_what_is_shown_is_near(seconds: int) -> None:
    """What is shown can be read again, and leaves out less than the smaller of its two units."""
    shown = show_duration(seconds)
    read = parse_duration(shown)
    assert read <= seconds
    assert seconds - read < {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[shown[-1]]
