"""Asking systemd: the system's manager, or a user's."""

import os
import re
import subprocess

from fairlead.base.errors import RefusedError, UnavailableError
from fairlead.systemd.places import Scope

#: The oldest systemd that knows every switch in the units.
OLDEST = 247
SERVICES = ("conductor", "porter", "daemon", "watchdog", "api")
TARGET = "fairlead.target"


class ManagerError(UnavailableError):
    """Systemd did not do what was asked of it."""


class Manager:
    """`systemctl`, for one of the managers."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._command = ["systemctl", *(["--user"] if scope is Scope.USER else []), "--no-pager"]

    def check(self) -> None:
        """Refuse where there is no manager, or one that is too old."""
        if not os.path.isdir("/run/systemd/system"):
            raise RefusedError(
                "this host was not booted with systemd; without it, `fairlead daemon --detach` and"
                " `fairlead watchdog --detach` run in the background."
            )
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout
        version = re.match(r"systemd (\d+)", said)
        if version is None or int(version[1]) < OLDEST:
            raise RefusedError(f"systemd {OLDEST} or newer is needed; this is {said.partition(chr(10))[0] or 'none'}.")
        if self._scope is Scope.USER and self._run("show", "--property=Version").returncode != 0:
            raise RefusedError(
                "no service manager of yours can be reached: log in afresh (su and sudo make no session), or let root"
                " say `loginctl enable-linger NAME`, then set XDG_RUNTIME_DIR=/run/user/UID."
            )

    def do(self, *words: str) -> None:
        """Have something done."""
        done = self._run(*words)
        if done.returncode != 0:
            raise ManagerError(f"`{' '.join([*self._command, *words])}` failed: {done.stderr.strip()}")

    def is_active(self, unit: str) -> bool:
        """Whether a unit is up, or about to be."""
        return self._run("is-active", unit).stdout.strip() in ("active", "activating", "reloading")

    def known(self, *units: str) -> list[str]:
        """Those of the units that the manager has, running or not."""
        listed = self._run("list-units", "--all", "--plain", "--no-legend", *units).stdout
        return [line.split()[0] for line in listed.splitlines() if line.strip()]

    def stop(self, *units: str) -> None:
        """Have units stopped, as far as they run."""
        if units:
            self.do("stop", *units)

    def forget_last_run(self, *timers: str) -> None:
        """Remove the stamps that persistent timers leave."""
        if timers:
            self.do("clean", "--what=state", *timers)

    def end_all_of(self, unit: str, signal: str) -> None:
        """Send a signal to every process of a unit; there may be none."""
        self._run("kill", "--kill-who=all", f"--signal={signal}", unit)

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*self._command, *words], capture_output=True, text=True, check=False)


def run(*command: str) -> None:
    """Run one of systemd's other tools."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ManagerError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
