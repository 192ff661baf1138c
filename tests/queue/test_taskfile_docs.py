"""Task files: the reference and the examples say what the code does."""

import re
from pathlib import Path

import pytest

from fairlead.config.loading import load
from fairlead.config.paths import Paths
from fairlead.config.schema import Agent, Config
from fairlead.queue.documents import MAX_DEPTH, MAX_YAML_VALUES, parse_yaml
from fairlead.queue.task import PRIORITIES
from fairlead.queue.taskfile import (
    FORMATS,
    KEYS,
    MAX_ARGUMENT,
    MAX_SOURCE,
    MAX_TITLE,
    Parsed,
    TaskFileError,
    parse_task,
)

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in FORMATS)
REFERENCE = (ROOT / "docs" / "task-file.md").read_text(encoding="utf-8")
CONFIG = Config(
    agents={
        "shell": Agent(command=("/bin/sh", "-c", "{prompt}")),
        "claude": Agent(command=("claude", "-p"), stdin="prompt"),
    }
)


def parse(text: str, name: str) -> Parsed:
    return parse_task(text.encode(), name, "alice", CONFIG, 0)


def blocks(language: str, text: str = REFERENCE) -> list[str]:
    """The reference's fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """The cells of each key's row in the reference."""
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", REFERENCE, re.MULTILINE)
    return {key: [cell.strip() for cell in cells.split("|")] for key, cells in found}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted(path: Path) -> None:
    """Whoever drops an example into the spool gets a task, without remarks."""
    parsed = parse(path.read_text(encoding="utf-8"), path.name)
    assert parsed.spec.source == path.name
    assert parsed.notes == ()


def test_there_is_an_example_of_every_format() -> None:
    """YAML, JSON and Markdown are all shown."""
    assert {path.suffix for path in EXAMPLES} == {".yaml", ".json", ".md"}


def test_one_example_has_every_key() -> None:
    """The full example shows all keys; `type` is another word for `action`."""
    data = parse_yaml((ROOT / "examples" / "every-key.yaml").read_bytes()).data
    assert set(data) == set(KEYS) - {"type"}


def test_the_reference_opens_with_the_smallest_example() -> None:
    """What a reader sees first is the file that is there."""
    assert blocks("yaml")[0] == (ROOT / "examples" / "hello.yaml").read_text(encoding="utf-8")


def test_the_reference_has_every_key_and_no_other() -> None:
    """Each key has its row, in the order of the code."""
    assert tuple(rows()) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_each_keys_example_is_accepted(key: str) -> None:
    """What stands in a row's last cell can be written into a file."""
    config = Config(agents=CONFIG.agents, default_project="website")
    example = rows()[key][-1].strip("`")
    prompt = "" if key == "prompt" else "prompt: go\n"
    assert example.startswith(f"{key}: ")
    assert parse_task(f"{prompt}{example}\n".encode(), "t.yaml", "alice", config, 0).spec.prompt


def test_the_markdown_example_is_accepted() -> None:
    """The front matter and the prompt of the shown file are read as the text says."""
    spec = parse(blocks("markdown")[0], "t.md").spec
    assert (spec.agent, spec.priority, spec.title) == ("claude", 1, "Mend the login test")


def test_the_shown_refusal_is_the_real_one() -> None:
    """The .error that the reference prints is what the code says about the file beside it."""
    section = REFERENCE[REFERENCE.index("## When a file is refused") :]
    built_in = load(Paths("/nowhere"), {}).config
    with pytest.raises(TaskFileError) as caught:
        parse_task(blocks("yaml", section)[0].encode(), "report.yaml", "alice", built_in, 0)
    assert blocks("text", section)[0] == f"{caught.value}\n"


@pytest.mark.parametrize("name", FORMATS)
def test_the_reference_names_every_ending(name: str) -> None:
    """No ending is a secret."""
    assert f"`*{name}`" in REFERENCE


def test_the_references_numbers_are_the_codes() -> None:
    """Limits and priorities in the text are those in the code."""
    assert f"up to {MAX_DEPTH} deep" in REFERENCE
    assert f"At most {MAX_YAML_VALUES:,} keys and values" in REFERENCE
    assert f"at most {MAX_ARGUMENT:,} bytes" in REFERENCE
    assert f"one line, at most {MAX_TITLE} characters" in rows()["title"][0]
    assert f"one line, at most {MAX_SOURCE} characters" in rows()["source"][0]
    numbers = re.findall(r"^\| number \|(.*)\|$", REFERENCE, re.MULTILINE)[0].split("|")
    for rank, cell in enumerate(numbers):
        for number in cell.split(","):
            assert parse(f"prompt: go\npriority: {number.strip()}", "t.yaml").spec.priority == rank
    assert (
        re.findall(r"^\| means \|(.*)\|$", REFERENCE, re.MULTILINE)[0].split()
        == [word for name in PRIORITIES for word in (f"`{name}`", "|")][:-1]
    )
