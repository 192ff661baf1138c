"""Where everything of one instance lives.

Paths do not depend on the configuration file, so that the short commands need not read it.
"""

import os

SYSTEM_CONFIG = "/etc/fairlead/config.yaml"


class Paths:
    """The directories and files of one instance."""

    def __init__(self, home: str, config_file: str | None = None, run: str | None = None) -> None:
        self.home = os.path.abspath(home)
        self.config_file = config_file or self._under("config.yaml")
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
        self.capacity = self._under("capacity.json")
        self.run = run or self._under("run")
        self.bells = os.path.join(self.run, "bells")
        self.daemon_lock = os.path.join(self.run, "daemon.lock")
        self.watchdog_lock = os.path.join(self.run, "watchdog.lock")

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


def find_paths(environ: dict[str, str] | None = None) -> Paths:
    """The instance that this environment means: FAIRLEAD_HOME, or XDG's directories."""
    env = os.environ if environ is None else environ
    config_file = env.get("FAIRLEAD_CONFIG") or None
    if home := env.get("FAIRLEAD_HOME"):
        return Paths(home, config_file)
    user_home = env.get("HOME") or os.path.expanduser("~")
    state = env.get("XDG_STATE_HOME") or os.path.join(user_home, ".local", "state")
    config = env.get("XDG_CONFIG_HOME") or os.path.join(user_home, ".config")
    return Paths(
        os.path.join(state, "fairlead"),
        config_file or os.path.join(config, "fairlead", "config.yaml"),
    )
