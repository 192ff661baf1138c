"""Logs: entries of the journal, or JSON lines in one file of all processes; readable lines on a terminal."""

import fcntl
import json
import math
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Literal, Protocol

import structlog

from fairlead.base.files import opened, remove, write_all
from fairlead.base.journal import Journal, journal_behind_stderr
from fairlead.base.text import one_line, visible

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
#: What every line has; the rest is what the line is about.
_HEAD = ("timestamp", "level", "event", "process", "pid")
#: What a line is about, if it says so, is a field of its own in the journal.
_ABOUT = ("task", "user", "attempt", "project")
#: The journal's priorities, those of syslog.
_PRIORITIES = {"debug": "7", "info": "6", "warning": "4", "error": "3"}


class Log(Protocol):
    """The few words of a structured log that most need."""

    def info(self, event: str, **fields: object) -> object:
        """Say that something happened."""

    def warning(self, event: str, **fields: object) -> object:
        """Say that something needs a look."""

    def error(self, event: str, **fields: object) -> object:
        """Say that something went wrong."""


def open_log(
    path: str,
    process: str,
    level: str = "info",
    *,
    terminal: bool = False,
    max_bytes: float = math.inf,
    keep: int = 5,
    file: Literal["auto", "always"] = "auto",
) -> structlog.typing.FilteringBoundLogger:
    """A logger of its own: nothing is configured for the process as a whole, so that two do not meet.

    Who does not know the settings sets no limit, and leaves the full file to those who do. Where standard error goes to
    the journal, so do the lines, and to the file only with `always`.
    """
    journal = journal_behind_stderr(os.environ)
    writer = _Writer(path, terminal=terminal, max_bytes=max_bytes, keep=keep)
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            writer if journal is None else _JournalWriter(journal, writer, and_file=file == "always"),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
        process=process,
    )
    return logger


class _Writer:
    """Appends JSON lines to the file.

    It is opened for every line (a few microseconds), so that a fork shares nothing and a file that was
    rotated or removed is left at once. A line is one write, so that processes do not cut into each other's.
    """

    def __init__(self, path: str, *, terminal: bool, max_bytes: float, keep: int) -> None:
        self._path = path
        self._terminal = terminal
        self._max_bytes = max_bytes
        self._keep = keep

    def __call__(self, _logger: object, _name: str, event: MutableMapping[str, Any]) -> str:
        event["pid"] = os.getpid()
        whole = {key: event[key] for key in _HEAD} | dict(event)
        if self._terminal:
            _say(readable(whole))
        line = json.dumps(whole, default=repr)
        try:
            self._append(line.encode() + b"\n")
        except OSError as error:
            # A full disk must not stop the work; the terminal or the journal still hears of it.
            _say(f"fairlead: cannot log to {self._path}: {error}: {line}")
        return ""

    def _append(self, line: bytes) -> None:
        with opened(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, line)
            if os.fstat(fd).st_size >= self._max_bytes:
                self._rotate(fd)

    def _rotate(self, fd: int) -> None:
        """Give each file the next number; whoever holds the full file's lock does it, nobody waits."""
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(self._path)):  # or else another writer was first
                self._shift()

    def _shift(self) -> None:
        free = next((n for n in range(1, self._keep) if not os.path.exists(self._numbered(n))), self._keep)
        for number in range(free, 1, -1):
            os.rename(self._numbered(number - 1), self._numbered(number))
        os.rename(self._path, self._numbered(1))
        surplus = self._keep + 1
        while remove(self._numbered(surplus)):  # more were kept before
            surplus += 1

    def _numbered(self, number: int) -> str:
        return f"{self._path}.{number}"


class _JournalWriter:
    """Hands lines to the journal; while it takes none, they go to the file."""

    def __init__(self, journal: Journal, file: _Writer, *, and_file: bool) -> None:
        self._journal = journal
        self._file = file
        self._and_file = and_file

    def __call__(self, logger: object, name: str, event: MutableMapping[str, Any]) -> str:
        try:
            self._journal.send(entry(event))
        except OSError:
            return self._file(logger, name, event)
        return self._file(logger, name, event) if self._and_file else ""


def entry(event: Mapping[str, Any]) -> dict[str, str]:
    """A line as the journal's fields: readable as a whole, and what it is about beside that."""
    about = {name: event[name] for name in ("event", "process", *_ABOUT) if event.get(name) not in ("", None)}
    return {
        "MESSAGE": words(event),
        "PRIORITY": _PRIORITIES[event["level"]],
        "SYSLOG_IDENTIFIER": "fairlead",
    } | {f"FAIRLEAD_{name.upper()}": one_line(str(value)) for name, value in about.items()}


def words(event: Mapping[str, Any]) -> str:
    """What happened, then the rest; a traceback follows on lines of its own, set in."""
    rest = {key: value for key, value in event.items() if key not in (*_HEAD, "exception")}
    fields = " ".join(f"{key}={one_line(str(value))}" for key, value in rest.items() if value not in ("", None))
    line = f"{one_line(str(event.get('event')))} {fields}".rstrip()
    return "\n  ".join([line, *visible(str(event.get("exception", ""))).splitlines()])


def readable(event: Mapping[str, Any]) -> str:
    """The same for a terminal, with its time, and its level where that is unusual."""
    mark = "" if event.get("level") == "info" else f"{str(event.get('level')).upper()} "
    return f"{str(event.get('timestamp'))[11:19]} {mark}{words(event)}"


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # the terminal may be gone, too
        sys.stderr.write(text + "\n")
