"""Logs: JSON lines in one file that all processes of an instance append to, readable lines on a terminal."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from fairlead.base.text import one_line

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def open_log(path: str, process: str, level: str = "info", *, terminal: bool = False) -> structlog.stdlib.BoundLogger:
    """A logger that writes each line with one call, so that processes do not cut into each other's lines."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Writer(path, sys.stderr if terminal else None),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(process=process, pid=os.getpid())
    return logger


class _Writer:
    """Appends JSON lines to the file, opening it anew when it was rotated away."""

    def __init__(self, path: str, terminal: TextIO | None) -> None:
        self._path = path
        self._terminal = terminal
        self._fd = -1
        self._json = structlog.processors.JSONRenderer()

    def __call__(self, logger: object, name: str, event: MutableMapping[str, Any]) -> str:
        if self._terminal is not None:
            print(readable(event), file=self._terminal, flush=True)
        line = self._json(logger, name, event)
        self._append((line if isinstance(line, str) else line.decode()) + "\n")
        return ""

    def _append(self, line: str) -> None:
        try:
            if self._fd < 0 or os.fstat(self._fd).st_nlink == 0:
                self._reopen()
            os.write(self._fd, line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            # A full disk must not stop the work; the terminal or the journal still hears of it.
            sys.stderr.write(f"fairlead: cannot log to {self._path}: {error}: {line}")

    def _reopen(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)


def readable(event: Mapping[str, Any]) -> str:
    """One line for people: time, what, then the rest."""
    rest = {key: value for key, value in event.items() if key not in ("timestamp", "event", "level", "process", "pid")}
    fields = " ".join(f"{key}={one_line(str(value))}" for key, value in rest.items() if value not in ("", None))
    mark = "" if event.get("level") == "info" else f"{str(event.get('level')).upper()} "
    return f"{str(event.get('timestamp'))[11:19]} {mark}{one_line(str(event.get('event')))} {fields}".rstrip()
