"""Imports go one way, as the table of rooms says."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Which rooms a room may import from, besides itself.
MAY_IMPORT = {
    "base": set(),
    "config": {"base"},
    "queue": {"base", "config"},
    "conductor": {"base", "config", "queue"},
    "daemon": {"base", "config", "queue", "conductor", "systemd"},
    "watchdog": {"base", "config", "queue", "conductor", "systemd"},
    "systemd": {"base", "config"},
    "cli": {"base", "config", "queue", "conductor", "daemon", "watchdog", "systemd"},
}


def _imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("fairlead.")}
    return rooms


def test_rooms_import_one_way() -> None:
    """No room imports from a room that the table does not allow it."""
    wrong = [
        f"{path.relative_to(ROOT)} imports from {room}"
        for own, allowed in MAY_IMPORT.items()
        for path in (ROOT / own).rglob("*.py")
        for room in _imported_rooms(path) - {own} - allowed
    ]
    assert wrong == []


def test_every_room_is_in_the_table() -> None:
    """A new room has to say what it may import."""
    rooms = {path.parent.name for path in ROOT.glob("*/fairlead")}
    assert rooms == set(MAY_IMPORT)
