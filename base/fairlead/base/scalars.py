"""What a plain word of a YAML file means, in task files and settings alike: what JSON's would, and all else is text."""

import math
import re
from typing import Any

import yaml

#: libyaml is ten times as fast; not every PyYAML is built with it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: No number that fits 64 bits needs more characters than this.
LONGEST_NUMBER = 40
#: Beside numbers these are all words that are not text: `no`, `on`, 0x1f, 12:30 and 2026-01-01 stay what was written.
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class TooLargeError(ValueError):
    """The number does not fit 64 bits."""


def plain_value(text: str) -> Any:  # noqa: ANN401 - whatever the word means
    """What a word without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    return number(text) if _NUMBER.fullmatch(text) else text


def number(text: str) -> int | float:
    """The number that JSON's notation means."""
    if len(text) > LONGEST_NUMBER:
        raise TooLargeError
    try:
        value: int | float = int(text)
    except ValueError:
        value = float(text)
    if not (-(1 << 63) <= value < 1 << 63 if isinstance(value, int) else math.isfinite(value)):
        raise TooLargeError
    return value
