"""Where everything of one instance lives.

Paths do not depend on the configuration file, so that the short commands need not read it.
"""

import os
from collections.abc import Mapping

from fairlead.base.errors import UsageError


class Paths:
    """The directories and files of one instance."""

    def __init__(self, home: str, config_file: str | None = None, run: str | None = None) -> None:
        self.home = os.path.abspath(home)
        self.config_file = os.path.abspath(config_file or self._under("config.yaml"))
        self.config_folder = os.path.join(os.path.dirname(self.config_file), "config.d")
        self.spool = self._under("spool")
        self.intake = self._under("spool", ".intake")
        self.rejected = self._under("spool", "rejected")
        self.accepted = self._under("accepted")
        self.store = self._under("queue.db")
        self.locks = self._under("locks")
        self.conductor = self._under("conductor")
        self.archive = self._under("archive")
        self.logs = self._under("logs")
        self.log_file = self._under("logs", "fairlead.log")
        self.error_log = self._under("logs", "spawner.err")
        self.capacity = self._under("capacity.json")
        self.run = run or self._under("run")
        self.bells = os.path.join(self.run, "bells")

    def single_lock(self, service: str) -> str:
        """The file by which there is one daemon, and one watchdog, for an instance."""
        return os.path.join(self.run, f"{service}.lock")

    def _under(self, *parts: str) -> str:
        return os.path.join(self.home, *parts)

    def directories(self) -> tuple[str, ...]:
        """Every directory an instance needs."""
        return (
            self.home,
            self.spool,
            self.intake,
            self.rejected,
            self.accepted,
            self.locks,
            self.conductor,
            self.archive,
            self.logs,
            self.run,
            self.bells,
        )


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The instance that this environment means: FAIRLEAD_HOME, or XDG's directories."""
    env = os.environ if environ is None else environ
    config_file = env.get("FAIRLEAD_CONFIG") or None
    if home := env.get("FAIRLEAD_HOME"):
        return Paths(home, config_file)
    state = _xdg(env, "XDG_STATE_HOME", ".local/state")
    return Paths(state, config_file or os.path.join(_xdg(env, "XDG_CONFIG_HOME", ".config"), "config.yaml"))


def _xdg(env: Mapping[str, str], name: str, under_home: str) -> str:
    """Fairlead's directory of one kind; XDG's rule is that a relative path there counts as none."""
    place = env.get(name, "")
    if not os.path.isabs(place):
        place = os.path.join(env.get("HOME") or os.path.expanduser("~"), under_home)
    if not os.path.isabs(place):
        raise UsageError("There is no home directory to keep anything in: set FAIRLEAD_HOME.")
    return os.path.join(place, "fairlead")
