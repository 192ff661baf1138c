"""Who starts agents: systemd, a porter who may ask it, or their supervisors themselves."""

from collections.abc import Mapping

from fairlead.base.errors import UnavailableError
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.systemd.unit import manager_for


class NoSystemdError(UnavailableError):
    """`launcher: systemd` is set, and there is no systemd that this user may ask; set it to process, or to auto."""


def starter_of(config: Config, paths: Paths, environ: Mapping[str, str]) -> str:
    """Who starts units, as supervisors are told: `system`, `user`, or a porter's socket; empty: nobody does."""
    if paths.is_system:
        return paths.porter
    manager = None if config.launcher == "process" else manager_for(environ)
    if manager is None and config.launcher == "systemd":
        raise NoSystemdError
    return manager or ""
