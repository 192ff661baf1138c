"""Where everything of one instance lives.

Paths do not depend on the configuration file, so that the short commands need not read it.
"""

import os
from collections.abc import Mapping
from enum import StrEnum

from fairlead.base.errors import UsageError

#: Where the sockets of the system's instance are.
SYSTEM_RUN = "/run/fairlead"
#: The porter's is in a directory of root's: what runs as root touches nothing where others may write.
SYSTEM_PORTER = "/run/fairlead-porter.sock"
#: The account that all services of the system's instance have, but for the porter.
SERVICE_USER = "_fairlead"


class Kind(StrEnum):
    """Whose instance it is."""

    #: One account's; users are labels.
    OWN = "own"
    #: The host's, under systemd: users are the system's users, and distrust each other.
    SYSTEM = "system"


class Paths:
    """The directories and files of one instance."""

    def __init__(
        self,
        home: str,
        config_file: str | None = None,
        run: str | None = None,
        *,
        spool: str | None = None,
        logs: str | None = None,
        kind: Kind = Kind.OWN,
    ) -> None:
        self.kind = kind
        self.home = os.path.abspath(home)
        self.config_file = os.path.abspath(config_file or self._under("config.yaml"))
        self.config_folder = os.path.join(os.path.dirname(self.config_file), "config.d")
        #: Where files are dropped; of the system's instance, where each user has a directory for that.
        self.spool = spool or self._under("spool")
        self.intake = self._under("intake") if self.is_system else self._under("spool", ".intake")
        self.rejected = self._under("rejected") if self.is_system else self._under("spool", "rejected")
        self.accepted = self._under("accepted")
        self.store = self._under("queue.db")
        self.locks = self._under("locks")
        self.conductor = self._under("conductor")
        self.archive = self._under("archive")
        self.logs = logs or self._under("logs")
        self.log_file = os.path.join(self.logs, "fairlead.log")
        self.error_log = os.path.join(self.logs, "spawner.err")
        self.capacity = self._under("capacity.json")
        self.run = run or self._under("run")
        self.bells = os.path.join(self.run, "bells")
        #: Where everybody may ask for what he is entitled to.
        self.api = os.path.join(self.run, "api.sock")
        #: Where the services ask for what only root can do.
        self.porter = SYSTEM_PORTER if self.is_system else os.path.join(self.run, "porter.sock")
        #: Where the conductor hears which runs are to be looked after.
        self.conductor_socket = os.path.join(self.run, "conductor.sock")

    @property
    def is_system(self) -> bool:
        """Whether this is the host's instance, whose users distrust each other."""
        return self.kind is Kind.SYSTEM

    def single_lock(self, service: str) -> str:
        """The file by which there is one daemon, and one watchdog, for an instance."""
        return os.path.join(self.run, f"{service}.lock")

    def _under(self, *parts: str) -> str:
        return os.path.join(self.home, *parts)

    def directories(self) -> tuple[str, ...]:
        """Every directory an instance needs, and that its services may make."""
        places = (
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
        return tuple(place for place in places if place != self.spool or not self.is_system)


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The instance that this environment means.

    FAIRLEAD_HOME names one. FAIRLEAD_INSTANCE says whether it is one's own, in XDG's directories, or the system's;
    where nothing is said it is one's own if that was ever used, else the system's if there is one. FAIRLEAD_ROOT is
    a directory to look for the system's under: whoever says so deceives nobody but himself, since what he may is
    decided by those who own that directory.
    """
    env = os.environ if environ is None else environ
    config_file = env.get("FAIRLEAD_CONFIG") or None
    if home := env.get("FAIRLEAD_HOME"):
        return Paths(home, config_file)
    wanted = env.get("FAIRLEAD_INSTANCE") or ""
    if wanted not in ("", *Kind):
        raise UsageError(f"FAIRLEAD_INSTANCE is {wanted!r}: it must be {' or '.join(Kind)}.")
    system = system_paths(config_file, env.get("FAIRLEAD_ROOT") or "/")
    if wanted == Kind.SYSTEM:
        return system
    try:
        own = _own_paths(env, config_file)
    except UsageError:
        if wanted or not os.path.lexists(system.api):
            raise
        return system
    if wanted or os.path.exists(own.store) or not os.path.lexists(system.api):
        return own
    return system


def system_paths(config_file: str | None = None, root: str = "/") -> Paths:
    """The host's instance; all of it under another root, for trying out."""
    top = os.path.abspath(root).rstrip("/")
    return Paths(
        f"{top}/var/lib/fairlead",
        config_file or f"{top}/etc/fairlead/config.yaml",
        f"{top}{SYSTEM_RUN}",
        spool=f"{top}/var/spool/fairlead",
        logs=f"{top}/var/log/fairlead",
        kind=Kind.SYSTEM,
    )


def _own_paths(env: Mapping[str, str], config_file: str | None) -> Paths:
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
