"""The reference and the example are printed from the schema, and nothing in it is without its sentence."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.config.instance import Instance

from fairlead.config.example import example
from fairlead.config.problems import show_path
from fairlead.config.reference import reference
from fairlead.config.schema import PLACEHOLDERS, Agent, Config, Project, Section
from fairlead.config.shape import fields_of

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "examples" / "config" / "config.yaml").read_text(encoding="utf-8")


def every_key() -> Iterator[tuple[str, str]]:
    """The path and the description of every key."""
    for section, path in ((Config, ()), (Agent, ("agents", "NAME")), (Project, ("projects", "NAME"))):
        yield from keys_of(section, path)


def keys_of(section: type[Section], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, field in fields_of(section).items():
        if field.shape.section:
            yield from keys_of(field.shape.section, (*path, name))
        else:
            yield show_path((*path, name)), field.shape.description


@pytest.mark.parametrize(
    ("module", "file"), [("reference", "docs/configuration.md"), ("example", "examples/config/config.yaml")]
)
def test_the_files_are_what_the_generators_print(module: str, file: str) -> None:
    """Whoever changes the schema prints both files again."""
    printed = subprocess.run([sys.executable, "-m", f"fairlead.config.{module}"], check=True, stdout=subprocess.PIPE)
    assert printed.stdout.decode() == (ROOT / file).read_text(encoding="utf-8")
    assert {"reference": reference, "example": example}[module]() == printed.stdout.decode()


@pytest.mark.parametrize(("key", "description"), list(every_key()))
def test_every_key_is_explained(key: str, description: str) -> None:
    """Each key has a row in the reference, with a sentence."""
    row = re.search(rf"^\| `{re.escape(key)}` \| (.*) \|$", REFERENCE, re.MULTILINE)
    assert row
    assert row[1].endswith(f" | {description}")
    assert re.fullmatch(r"[A-Z`].*\.", description)


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_every_placeholder_is_explained(name: str) -> None:
    """Each placeholder has a row in the reference."""
    assert f"| `{{{name}}}` | {PLACEHOLDERS[name]} |" in REFERENCE


def test_the_example_changes_nothing(instance: Instance) -> None:
    """As it is, the example is a file of comments."""
    instance.write(EXAMPLE)
    assert instance.config() == Config(agents=instance.config().agents)


def test_the_example_shows_the_defaults(instance: Instance) -> None:
    """With every mark removed it is a valid configuration: the defaults, one agent and one project."""
    instance.write(keys_alone(EXAMPLE))
    shown = instance.config()
    assert shown.agents["my-agent"].command == ("my-agent", "--prompt-file", "{prompt_file}")
    assert set(shown.projects) == {"website"}
    assert shown.default_user == "alice"
    plain = msgspec.structs.replace(shown, agents={}, projects={}, default_user=None)
    assert plain == Config()


def keys_alone(text: str) -> str:
    """The example without its explanations, and without the marks before the keys."""
    return "\n".join(re.findall(r"^#((?: {2}| {4}| {6})?[a-z_-]+:.*)", text, re.MULTILINE))


def test_the_sample_of_the_reference_loads(instance: Instance) -> None:
    """The first thing that a reader copies works."""
    sample = re.search(r"```yaml\n(# config\.yaml\n.*?)```", REFERENCE, re.DOTALL)
    assert sample
    instance.write(sample[1])
    assert instance.config().slots.max == 8
    assert instance.config().projects["website"].agent == "codex"


def test_the_variables_of_the_reference_load(instance: Instance) -> None:
    """The overrides that are shown work."""
    block = re.search(r"```sh\n(FAIRLEAD__.*?)```", REFERENCE, re.DOTALL)
    assert block
    shown = dict(re.findall(r"^(FAIRLEAD__\w+)='?([^'\n]*?)'?(?: fairlead up)?$", block[1], re.MULTILINE))
    assert len(shown) == len(block[1].splitlines())
    config = instance.config(**shown)
    assert config.slots.max == 8
    assert config.operators == ("alice", "bob")
    assert config.agents["claude"].timeout == 7200
