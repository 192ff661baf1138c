"""The two services of an instance, and how to start the one that does not run."""

from fairlead.base.bell import is_heard

SERVICES = ("daemon", "watchdog")


def starter(bells: str, name: str) -> str:
    """The command that starts a service: `up` runs both, so it is refused beside the other one."""
    is_alone = not any(is_heard(bells, other) for other in SERVICES if other != name)
    return "fairlead up" if is_alone else f"fairlead {name} --detach"


def how_to_start(bells: str, name: str) -> str:
    """What to do about a service that does not run."""
    command = starter(bells, name)
    return f"`{command}` starts {'both services' if command == 'fairlead up' else 'it'}"
