"""Renders examples/config/config.yaml from the schema: `python -m fairlead.config.example`."""

import sys
from collections.abc import Iterator

import msgspec

from fairlead.config.schema import Agent, Config, Project, Section
from fairlead.config.shape import Field, briefly, fields_of

_INTRO = """\
# Every setting with its default. Copy this file, then remove the "#" before what you change: the section's
# line and the key's. Lines with "# " explain. docs/configuration.md says where the file belongs.
"""

#: Names of the reader's own, to show the form; a key that is here has no default to show.
_SAMPLES = {
    "command": '[my-agent, --prompt-file, "{prompt_file}"]',
    "path": "~/src/website",
    "members": "[alice, group:web]",
    "agent": "claude",
    "priority": "medium",
    "owner": "alice",
    "timeout": "1h",
    "default_user": "alice",
}


def example() -> str:
    """The whole file."""
    return "\n".join(
        [
            _INTRO,
            *_keys(Config),
            *_named("agents", "my-agent", Agent),
            *_named("projects", "website", Project),
        ]
    )


def _keys(section: type[Section]) -> Iterator[str]:
    for name, field in fields_of(section).items():
        if inner := field.shape.section:
            yield f"# {inner.__doc__}\n#{name}:"
            yield from (line for key, value in fields_of(inner).items() for line in _key(key, value, "  "))
            yield ""
        elif name not in ("agents", "projects"):
            yield from (*_key(name, field, ""), "")


def _named(plural: str, name: str, section: type[Section]) -> Iterator[str]:
    yield f"# {fields_of(Config)[plural].shape.description}\n#{plural}:\n#  {name}:"
    yield from _entries(section, "    ")
    yield ""


def _entries(section: type[Section], indent: str) -> Iterator[str]:
    for key, field in fields_of(section).items():
        if inner := field.shape.section:
            yield f"# {indent}{inner.__doc__}\n#{indent}{key}:"
            yield from _entries(inner, f"{indent}  ")
        else:
            yield from _key(key, field, indent)


def _key(name: str, field: Field, indent: str) -> Iterator[str]:
    yield f"# {indent}{field.shape.description} ({briefly(field.shape)})"
    yield f"#{indent}{name}: {_value(name, field)}"


def _value(name: str, field: Field) -> str:
    if field.required or field.default is None:
        return _SAMPLES.get(name, "null")
    if field.shape.item:
        return "[" + ", ".join(field.default) + "]"
    text = msgspec.json.encode(field.default).decode()
    return text.strip('"').removesuffix(".0")


if __name__ == "__main__":
    sys.stdout.write(example())
