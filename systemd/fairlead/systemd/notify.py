"""Telling systemd how a service is: ready, alive, reading its settings again, stopping.

These are the datagrams of sd_notify(3). Where no manager waits for them, nobody is told.
"""

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

from fairlead.base.text import one_line

#: A manager that does not read what it is told is waited for this long, in seconds.
_PATIENCE = 1.0


class Notifier:
    """The way to the manager that started this process.

    What it said in the environment is taken out of it: no child is to speak, or to be alive, in our place.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        #: The manager ends us when it has not heard from us for so many seconds; none if it does not count.
        self.patience = _patience(environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", ""))
        self._socket: socket.socket | None = None
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(_PATIENCE)
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def starting(self, status: str, seconds: float) -> None:
        """We are not ready yet, and may need so many seconds more."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", _status(status))

    def ready(self) -> None:
        """We work; or again, after reading the settings."""
        self._tell("READY=1")

    def status(self, status: str) -> None:
        """How we are, in a few words for `systemctl status`."""
        self._tell(_status(status))

    def alive(self) -> None:
        """We have got on: to be said from where the work is done, and from nowhere else."""
        if self.patience is not None:
            self._tell("WATCHDOG=1")

    def reloading(self) -> None:
        """We read our settings again, until the next `ready`."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """We are on our way out."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        """One datagram; a manager that has gone, or does not listen, is no reason to stop working."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)

    def close(self) -> None:
        """Say nothing any more."""
        if self._socket is not None:
            self._socket.close()


def _status(words: str) -> str:
    """The status on one line: whatever is in it, it cannot say anything else."""
    return f"STATUS={one_line(words)}"


def _patience(microseconds: str, pid: str) -> float | None:
    """What WATCHDOG_USEC says, if it is said to us."""
    is_ours = pid in ("", str(os.getpid()))
    return int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() and int(microseconds) else None
