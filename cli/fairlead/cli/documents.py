"""Options as a task file: whatever is said on the command line is read by the same rules as a dropped file."""

import json
from collections.abc import Mapping
from typing import Any

NAME = "submit.json"


def document(given: Mapping[str, object]) -> bytes:
    """A task file that says what the options said."""
    return json.dumps({key: number(key, value) for key, value in given.items()}).encode()


def number(key: str, value: Any) -> Any:  # noqa: ANN401 - whatever an option holds
    """Priorities are words or numbers; the command line has words only."""
    is_number = key == "priority" and isinstance(value, str) and value.isascii() and value.isdigit()
    return int(value) if is_number else value
