"""Launchers: how the daemon gets a supervisor started for a run directory."""

import os
import select
import socket
import struct
import subprocess
import sys
from typing import Protocol

from fairlead.base.errors import UnavailableError
from fairlead.base.files import opened

#: A spawner that does not take a request for so long is given up.
PATIENCE = 10.0


class SpawnerGoneError(UnavailableError):
    """The spawner has died; claims that it had not started are taken back."""


class Launcher(Protocol):
    """Starts supervisors. Starting twice is harmless: the second finds the run inhabited, and leaves."""

    def launch(self, run_dir: str) -> None:
        """Have a supervisor started; it runs on its own from there."""

    def close(self) -> None:
        """Let go; supervisors go on."""


class ServiceLauncher:
    """Supervisors forked by a spawner that is a service of its own, so that no restart of ours touches it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def launch(self, run_dir: str) -> None:
        """Have a supervisor started; it runs on its own from there."""
        try:
            self._socket = requests = self._socket or self._connect()
            requests.send(os.fsencode(run_dir))
        except OSError as error:
            self.close()
            raise SpawnerGoneError(f"the conductor at {self._path} cannot be reached: {error}") from error

    def _connect(self) -> socket.socket:
        requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        requests.settimeout(PATIENCE)
        try:
            requests.connect(self._path)
        except OSError:
            requests.close()
            raise
        return requests

    @property
    def died(self) -> bool:
        """Whether the spawner that we spoke to has hung up."""
        return self._socket is not None and bool(select.select([self._socket], [], [], 0)[0])

    @property
    def pid(self) -> int | None:
        """The spawner's pid, while one is known."""
        if self._socket is None:
            return None
        pid, _, _ = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid)

    def close(self) -> None:
        """Let go; supervisors go on."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


class ProcessLauncher:
    """Supervisors forked by a spawner process."""

    def __init__(self, error_log: str, bells: str) -> None:
        self._error_log = error_log
        self._bells = bells
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the spawner, unless it runs."""
        if self._socket is None:
            self._socket = self._connect()

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        ours.settimeout(PATIENCE)
        with theirs:
            try:
                self._process = self._spawn(theirs)
            except OSError as error:
                ours.close()
                raise SpawnerGoneError(f"the spawner cannot be started: {error}") from error
        return ours

    def _spawn(self, requests: socket.socket) -> "subprocess.Popen[bytes]":
        with opened(self._error_log, os.O_CREAT | os.O_WRONLY | os.O_APPEND) as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "fairlead.conductor.spawner", self._bells],
                stdin=requests.fileno(),
                stdout=errors,
                stderr=errors,
                cwd="/",
                start_new_session=True,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )

    def launch(self, run_dir: str) -> None:
        """Have a supervisor started; it runs on its own from there."""
        self._socket = requests = self._socket or self._connect()
        try:
            requests.send(os.fsencode(run_dir))
        except OSError as error:
            self.close()
            raise SpawnerGoneError(f"the spawner is gone: {error}") from error

    @property
    def died(self) -> bool:
        """Whether the spawner that was started has ended."""
        return self._process is not None and self._process.poll() is not None

    @property
    def pid(self) -> int | None:
        """The spawner's pid, while one is known."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """Let go; supervisors go on."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._process = None
