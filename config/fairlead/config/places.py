"""Where the tasks of a project run."""

import os

from fairlead.base.identity import home_of
from fairlead.config.paths import Paths
from fairlead.config.schema import Config


def directory_of(project: str, config: Config, paths: Paths, user: str) -> str:
    """The project's directory; one without an entry in the settings has the instance's home.

    In the system's instance agents are the system's users, and each is at home in his own.
    """
    settings = config.projects.get(project)
    if not paths.is_system:
        return os.path.expanduser(settings.path) if settings else paths.home
    path = settings.path if settings else "~"
    return home_of(user) + path[1:] if path == "~" or path.startswith("~/") else path
