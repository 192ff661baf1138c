"""Where an installation puts its files: for the whole system, or for one user."""

import os
from collections.abc import Mapping
from enum import StrEnum

from fairlead.config.paths import SYSTEM_RUN, Paths, find_paths, system_paths

#: The account of the services, and the group of those who may use the system's instance.
ACCOUNT = "_fairlead"
GROUP = "fairlead"


class Scope(StrEnum):
    """For whom Fairlead is installed."""

    SYSTEM = "system"
    USER = "user"


class Places:
    """The directories of one installation. `root` is put before each of them: a packager's DESTDIR, or nothing."""

    def __init__(self, scope: Scope, environ: Mapping[str, str], prefix: str = "/usr/local") -> None:
        self.scope = scope
        self.root = environ.get("DESTDIR", "").rstrip("/")
        home = environ.get("HOME") or os.path.expanduser("~")
        is_system = scope is Scope.SYSTEM
        share = f"{prefix}/share" if is_system else f"{home}/.local/share"
        config = "/etc" if is_system else f"{home}/.config"
        #: The instance whose services these are.
        self.instance = system_paths() if is_system else _own(home)
        self.run = SYSTEM_RUN if is_system else self.instance.run
        self.config_file = f"{config}/fairlead/config.yaml"
        self.units = f"{prefix}/lib/systemd/system" if is_system else f"{config}/systemd/user"
        self.lib = f"{prefix}/lib"
        self.command = f"{prefix}/bin/fairlead" if is_system else f"{home}/.local/bin/fairlead"
        self.man = f"{share}/man"
        self.completions = {
            "bash": f"{share}/bash-completion/completions/fairlead",
            "zsh": f"{share}/zsh/site-functions/_fairlead",
            "fish": f"{share}/fish/vendor_completions.d/fairlead.fish",
        }
        #: What was installed, by whom it may be changed who may change that.
        self.manifest = f"{prefix}/lib/fairlead/installed.json" if is_system else f"{share}/fairlead/installed.json"

    def real(self, path: str) -> str:
        """Where a path of the installation is on this machine now."""
        return self.root + path


def _own(home: str) -> Paths:
    """A user's instance as his services find it: by the home alone, whatever this shell says."""
    return find_paths({"HOME": home, "FAIRLEAD_INSTANCE": "own"})
