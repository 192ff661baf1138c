"""Reading the schema's types: what a value must be, for loading as well as for the reference."""

import re
import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from fairlead.config.schema import Section


class Shape(NamedTuple):
    """A field's type, taken apart."""

    annotation: Any  # as msgspec checks it
    core: Any  # without Annotated and without None
    metas: tuple[Meta, ...]

    @property
    def section(self) -> type[Section] | None:
        """The section's class, if this is one."""
        return self.core if isinstance(self.core, type) and issubclass(self.core, Section) else None

    @property
    def mapping(self) -> tuple["Shape", "Shape"] | None:
        """The shapes of key and value, if this is a mapping of names."""
        if get_origin(self.core) is not dict:
            return None
        key, value = get_args(self.core)
        return shape_of(key), shape_of(value)

    @property
    def item(self) -> "Shape | None":
        """The shape of an item, if this is a list."""
        return shape_of(get_args(self.core)[0]) if get_origin(self.core) is tuple else None

    @property
    def is_duration(self) -> bool:
        """Whether a text like 15m is welcome."""
        return bool(self.word("duration"))

    @property
    def is_size(self) -> bool:
        """Whether a text like 512M is welcome."""
        return bool(self.word("size"))

    @property
    def description(self) -> str:
        """What the schema says about this field."""
        return str(self.find("description") or "")

    def find(self, attribute: str) -> Any:  # noqa: ANN401 - as varied as Meta's attributes
        """The innermost value of one of Meta's attributes."""
        return next((value for meta in self.metas if (value := getattr(meta, attribute)) is not None), None)

    def word(self, name: str) -> Any:  # noqa: ANN401 - see find
        """A word of the types' `extra`."""
        return (self.find("extra") or {}).get(name)


class Field(NamedTuple):
    """One key of a section."""

    shape: Shape
    default: Any
    required: bool


@cache
def fields_of(section: type[Section]) -> dict[str, Field]:
    """The keys of a section, in the schema's order."""
    return {
        info.name: Field(shape_of(info.type), _default(info), info.required) for info in msgspec.structs.fields(section)
    }


def shape_of(annotation: Any) -> Shape:  # noqa: ANN401 - types come in many types
    """Take a type apart: Annotated and None in any order around the core."""
    core, metas = annotation, ()
    while True:
        if get_origin(core) is Annotated:
            core, metas = core.__origin__, core.__metadata__ + metas
        elif get_origin(core) in (Union, types.UnionType):
            core = next(part for part in get_args(core) if part is not types.NoneType)
        else:
            return Shape(annotation, core, metas)


def expected(shape: Shape) -> str:
    """What a value must be, in words."""
    if shape.section:
        return f"mapping with the keys {', '.join(fields_of(shape.section))}"
    if shape.mapping:
        key, value = shape.mapping
        return f"mapping of {_noun(key)} to {_noun(value)}"
    if shape.item:
        return f"list of {_noun(shape.item)}" + (", at least one" if shape.find("min_length") else "")
    return _noun(shape) + _bounds(shape)


def briefly(shape: Shape) -> str:
    """What a value must be, without what brackets explain."""
    return re.sub(r" \([^)]*\)", "", expected(shape))


def _noun(shape: Shape) -> str:
    if noun := shape.word("noun"):
        return str(noun)
    if get_origin(shape.core) is Literal:
        return "one of " + ", ".join(get_args(shape.core))
    if shape.section:
        return shape.section.__name__.lower()
    if shape.is_duration:
        return "duration (seconds, or like 90s, 15m, 1h30m, 2d)"
    if shape.is_size:
        return "size (bytes, or like 512M, 4G)"
    return {bool: "true or false", int: "whole number", float: "number"}[shape.core]


def _bounds(shape: Shape) -> str:
    words = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}"}
    return "".join(f", {text.format(bound)}" for word, text in words.items() if (bound := shape.find(word)) is not None)


def _default(info: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - as varied as the fields
    return info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
