"""Where the tasks of a project run."""

import os

from fairlead.config.paths import Paths
from fairlead.config.schema import Config


def directory_of(project: str, config: Config, paths: Paths) -> str:
    """The project's directory; one without an entry in the settings has the instance's home."""
    settings = config.projects.get(project)
    return os.path.expanduser(settings.path) if settings else paths.home
