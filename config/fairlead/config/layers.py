"""One layer at a time is checked against the schema; then later layers are laid over earlier ones."""

from enum import Enum
from typing import Any

import msgspec

from fairlead.base.durations import parse_duration
from fairlead.base.errors import UsageError
from fairlead.base.sizes import parse_size
from fairlead.config.problems import Path, Problem, did_you_mean, show_path, show_value
from fairlead.config.reading import Node
from fairlead.config.schema import Section
from fairlead.config.shape import Shape, expected, fields_of

Entries = dict[str, Node]


class Null(Enum):
    """What a null means: a key of the schema goes back to its default, a name is taken out."""

    RESET = "reset"
    REMOVE = "remove"


class LayerCheck:
    """Checks one layer and turns its values into those of the schema; whatever is wrong is left out."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def section(self, node: Node, section: type[Section], path: Path = ()) -> Entries:
        """The entries of a section that are known and right."""
        fields = fields_of(section)
        checked = {}
        for name, child in node.value.items():
            if name not in fields:
                self._refuse(child, (*path, name), "unknown key" + did_you_mean(name, fields))
            elif value := self._value(child, fields[name].shape, (*path, name), Null.RESET):
                checked[name] = value
        return checked

    def _names(self, node: Node, key: Shape, shape: Shape, path: Path) -> Entries:
        checked = {}
        for name, child in node.value.items():
            if _convert(name, key) is None:
                self._refuse(child, (*path, name), f"{show_value(name)} will not do here; expected {expected(key)}")
            elif value := self._value(child, shape, (*path, name), Null.REMOVE):
                checked[name] = value
        return checked

    def _value(self, node: Node, shape: Shape, path: Path, null: Null) -> Node | None:
        if node.value is None:
            return node._replace(value=null)
        if shape.section and isinstance(node.value, dict):
            return node._replace(value=self.section(node, shape.section, path))
        if shape.mapping and isinstance(node.value, dict):
            return node._replace(value=self._names(node, *shape.mapping, path))
        if shape.item and isinstance(node.value, list):
            return self._list(node, shape, shape.item, path)
        return self._single(node, shape, path)

    def _list(self, node: Node, shape: Shape, item: Shape, path: Path) -> Node | None:
        checked = [self._single(child, item, (*path, f"[{number}]")) for number, child in enumerate(node.value)]
        values = [child.value for child in checked if child]
        return self._single(node._replace(value=values), shape, path) if len(values) == len(checked) else None

    def _single(self, node: Node, shape: Shape, path: Path) -> Node | None:
        value = _convert(node.value, shape)
        if value is not None:
            return node._replace(value=value)
        self._refuse(node, path, f"expected {expected(shape)}; got {show_value(node.value)}" + _hint(node, shape))
        return None

    def _refuse(self, node: Node, path: Path, what: str) -> None:
        self._problems.append(Problem(node.origin, show_path(path), what))


def overlay(below: Entries, above: Entries, shipped: Entries) -> Entries:
    """Lay one layer over what is there: mappings merge by key, everything else is replaced."""
    merged = dict(below)
    for name, node in above.items():
        if isinstance(node.value, dict):
            inner = overlay(entries_of(merged.get(name)), node.value, entries_of(shipped.get(name)))
            merged[name] = node._replace(value=inner)
        elif node.value is Null.RESET and name in shipped:
            merged[name] = shipped[name]
        elif isinstance(node.value, Null):
            merged.pop(name, None)
        else:
            merged[name] = node
    return merged


def entries_of(node: Node | None) -> Entries:
    """The entries of a mapping; none if it is not there."""
    return node.value if node and isinstance(node.value, dict) else {}


def _convert(value: Any, shape: Shape) -> Any:  # noqa: ANN401 - from whatever was written to what the schema wants
    """The value as the schema wants it; None if it cannot be."""
    try:
        if shape.is_duration and isinstance(value, int | float | str):
            value = parse_duration(value)
        elif shape.is_size and isinstance(value, int | float | str):
            value = parse_size(value)
        return msgspec.convert(value, shape.annotation)
    except (msgspec.ValidationError, UsageError, OverflowError):
        return None


def _hint(node: Node, shape: Shape) -> str:
    """YAML reads 8080, true and {prompt} as something else than text: the most common surprise."""
    return "; write it in quotes" if shape.core is str and isinstance(node.value, int | float | dict) else ""
