"""The effective settings as rows, and the difference between two of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fairlead.config.loading import Settings
from fairlead.config.problems import DEFAULT, Path, show_path


class Row(NamedTuple):
    """One effective value and who set it: file:line, an environment variable, or `default`."""

    key: str
    value: Any
    origin: str


def describe(settings: Settings) -> list[Row]:
    """Every effective value, in the schema's order."""
    return [
        Row(show_path(path), value, str(settings.origins.get(path, DEFAULT)))
        for path, value in _leaves(msgspec.to_builtins(settings.config))
    ]


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """The key paths whose effective value is not the same; where it was written does not matter."""
    before, after = _set(old), _set(new)
    everywhere = list(dict.fromkeys([*after, *before]))
    return [key for key in everywhere if key not in before or key not in after or before[key] != after[key]]


def _set(settings: Settings) -> dict[str, Any]:
    """Without empty mappings: a name that comes or goes is the change, not the mapping that held none."""
    return {row.key: row.value for row in describe(settings) if row.value != {}}


def _leaves(tree: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value
