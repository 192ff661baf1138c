"""Names and ids: what may become part of a path, and how new ids are made."""

import calendar
import os
import re
import time

from fairlead.base.errors import UsageError

#: Base-32 digits without the letters that people misread (no i, l, o, u).
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
TAIL_LENGTH = 10

_ID = re.compile(r"[a-z0-9-]{1,64}")
_MADE = re.compile(rf"2[0-9]{{7}}-[0-9]{{9}}-[{DIGITS}]{{{TAIL_LENGTH}}}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def new_id(wall_ms: int) -> str:
    """A new task id: UTC date, time to the millisecond, and fifty random bits.

    It sorts by time, a person can read it, and two hosts do not meet.
    """
    seconds, rest = divmod(wall_ms, 1000)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
    bits = int.from_bytes(os.urandom(7), "little")
    tail = "".join(DIGITS[bits >> (5 * i) & 31] for i in range(TAIL_LENGTH))
    return f"{stamp}{rest:03d}-{tail}"


def created_at(task_id: str, otherwise: int) -> int:
    """When an id was made, which it says itself."""
    try:
        moment = time.strptime(task_id[:15], "%Y%m%d-%H%M%S")
        return calendar.timegm(moment) * 1000 + int(task_id[15:18])
    except ValueError:
        return otherwise


def is_id(text: str) -> bool:
    """Whether the text may be a task id, and so part of a path."""
    return _ID.fullmatch(text) is not None


def is_made(text: str) -> bool:
    """Whether a task id has the form of those that are made here."""
    return _MADE.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether the text may name a user, project, agent or action, and so be part of a path."""
    return _NAME.fullmatch(text) is not None


def check_id(text: str) -> str:
    """Return the id, or refuse it before any path is built from it."""
    if not is_id(text):
        raise UsageError(f"{text!r} is not a task id: ids have 1 to 64 of a-z, 0-9 and '-'.")
    return text


def check_name(text: str, what: str = "name") -> str:
    """Return the name, or refuse it before any path is built from it."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} cannot be a {what}: use 1 to 64 letters, digits, '_', '.' or '-', not starting with '.' or '-'."
        )
    return text


def bucket(task_id: str) -> str:
    """The folder under accepted/ that holds this task's file: its hour."""
    return task_id[:11]


def month(task_id: str) -> str:
    """The folder under archive/ that holds this task's record: the month it was made in."""
    return f"{task_id[:4]}-{task_id[4:6]}"
