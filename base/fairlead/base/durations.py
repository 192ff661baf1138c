"""Durations as people write them: 90, 90s, 15m, 1h30m, 2d."""

import re

from fairlead.base.errors import UsageError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")


def parse_duration(value: float | str) -> float:
    """Seconds, from a number of seconds or a text like 1h30m."""
    if isinstance(value, bool):
        raise UsageError(f"{value!r} is not a duration: write seconds, or a text like 90s, 15m, 1h30m, 2d.")
    if isinstance(value, int | float):
        return _positive(value, value)
    text = value.strip().lower()
    if _WHOLE.fullmatch(text):
        return _positive(sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text)), value)
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _positive(float(text), value)
    raise UsageError(f"{value!r} is not a duration: write seconds, or a text like 90s, 15m, 1h30m, 2d.")


def show_duration(seconds: float) -> str:
    """A duration for people: two units at most."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f}s".replace(".0s", "s")
    rest, parts = int(seconds), []
    for unit in ("w", "d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def _positive(seconds: float, given: object) -> float:
    if not 0 <= seconds < 1e10:  # noqa: PLR2004 - three centuries; also refuses nan and infinity
        raise UsageError(f"{given!r} is not a duration: it must be 0 or more, and finite.")
    return float(seconds)
