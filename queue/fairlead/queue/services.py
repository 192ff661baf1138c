"""The two services of an instance, and how to start the one that does not run."""

from fairlead.base.bell import is_heard
from fairlead.config.paths import Paths

SERVICES = ("daemon", "watchdog")


def starter(paths: Paths, name: str) -> str:
    """The command that starts a service: `up` runs both, so it is refused beside the other one."""
    if paths.is_system:
        return f"systemctl start fairlead-{name}"
    is_alone = not any(is_heard(paths.bells, other) for other in SERVICES if other != name)
    return "fairlead up" if is_alone else f"fairlead {name} --detach"


def how_to_start(paths: Paths, name: str) -> str:
    """What to do about a service that does not run."""
    command = starter(paths, name)
    return f"`{command}` starts {'both services' if command == 'fairlead up' else 'it'}"
