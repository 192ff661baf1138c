"""Sizes as people write them: 4096, 512M, 1.5G; K, M, G and T are powers of 1024."""

import re

from fairlead.base.errors import UsageError

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?")


def parse_size(value: float | str) -> int:
    """Bytes, from a number of bytes or a text like 512M."""
    if isinstance(value, str) and (found := _SIZE.fullmatch(value.strip().lower())):
        return round(float(found[1]) * _UNITS[found[2]])
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise UsageError(f"{value!r} is not a size: write bytes, or a text like 512M, 4G.")


def show_size(count: int) -> str:
    """A size for people."""
    for unit in ("t", "g", "m", "k"):
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.1f}".removesuffix(".0") + f" {unit.upper()}iB"
    return f"{count} bytes"
