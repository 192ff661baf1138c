"""Options as a task file: whatever is said on the command line is read by the same rules as a dropped file."""

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from fairlead.base.errors import UsageError
from fairlead.queue.taskfile import TaskFileError

NAME = "submit.json"

T = TypeVar("T")


def document(given: Mapping[str, object]) -> bytes:
    """A task file that says what the options said."""
    return json.dumps({key: _number(value) if key == "priority" else value for key, value in given.items()}).encode()


def _number(value: object) -> object:
    """Priorities are words or numbers; the command line has words only."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def said(read: Callable[[], T]) -> T:
    """What `read` makes of such a file; its problems are said without a file's name and line, which nobody wrote."""
    try:
        return read()
    except TaskFileError as error:
        raise UsageError("; ".join(problem.removeprefix("line 1: ") for problem in error.problems)) from error
