"""Imports go one way, as the table of rooms says."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Which rooms a room may import from, besides itself.
MAY_IMPORT = {
    "base": set(),
    "config": {"base"},
    "queue": {"base", "config"},
    "conductor": {"base", "config", "queue", "systemd"},
    "porter": {"base", "config", "systemd", "conductor"},
    "daemon": {"base", "config", "queue", "conductor", "systemd"},
    "watchdog": {"base", "config", "queue", "conductor", "systemd"},
    "systemd": {"base", "config"},
    "desk": {"base", "config", "queue", "conductor", "watchdog"},
    "web": {"base", "config", "queue", "desk", "systemd"},
    "cli": {"base", "config", "queue", "conductor", "daemon", "watchdog", "systemd", "porter", "desk", "web"},
}


#: The queue's types, which are all that the conductor may know of it.
TYPES = {"fairlead.queue.states", "fairlead.queue.store", "fairlead.queue.task"}


def _imported(path: Path) -> set[str]:
    """Our modules, and names in them, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("fairlead.")}


def _imported_rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in _imported(path)}


def test_rooms_import_one_way() -> None:
    """No room imports from a room that the table does not allow it."""
    wrong = [
        f"{path.relative_to(ROOT)} imports from {room}"
        for own, allowed in MAY_IMPORT.items()
        for path in (ROOT / own).rglob("*.py")
        for room in _imported_rooms(path) - {own} - allowed
    ]
    assert wrong == []


def test_the_conductor_knows_the_queues_types_alone() -> None:
    """A supervisor must not come to load the store."""
    queues = {
        name
        for path in (ROOT / "conductor").rglob("*.py")
        for name in _imported(path)
        if name.startswith("fairlead.queue.") and name.rpartition(".")[0] not in TYPES
    }
    assert queues == set()


def test_every_room_is_in_the_table() -> None:
    """A new room has to say what it may import."""
    rooms = {path.parent.name for path in ROOT.glob("*/fairlead")}
    assert rooms == set(MAY_IMPORT)
