"""Reading: plain YAML from plain files; everything clever is refused with its line."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.config.instance import Instance

from fairlead.config import reading
from fairlead.config.problems import Origin, Problem
from fairlead.config.reading import LIMIT, Node, Unreadable, parse
from fairlead.queue.documents import parse_yaml


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def make_text(text: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text)


ODD_FILES = [
    (make_fifo, ": it is not a regular file"),
    (Path.mkdir, ": it is not a regular file"),
    (lambda path: path.symlink_to("/dev/zero"), ": it is not a regular file"),
    (lambda path: path.symlink_to("nowhere"), ": it cannot be read: No such file or directory"),
    (lambda path: path.symlink_to(path), ": it cannot be read: Too many levels of symbolic links"),
    (make_huge, ": it is larger than 256 KiB"),
    (make_text(b"#" * (LIMIT + 1)), ": it is larger than 256 KiB"),
    (make_text(b"slots:\n  max: \xff\n"), ":2: it is not UTF-8 text; save it as UTF-8"),
    (make_text("slots: {max: 5}".encode("utf-16")), ":1: it is not UTF-8 text; save it as UTF-8"),
    (make_text("# é\nslots: \0".encode()), ":2: the character U+0000 is not allowed"),
    (make_text(b"slots: {max: 5\n"), ":2: it is not valid YAML: "),
    (make_text(b"slots:\n\tmax: 5\n"), ":2: it is not valid YAML: "),
    (make_text(b"".join(b"%%TAG !%d! b\n" % i for i in range(15_000))), ":1: %TAG is not allowed here"),
    (make_text(b"slots: {max: 5}\n...\n%TAG ! tag:x,2000:\n---\n"), ":3: %TAG is not allowed here"),
    (make_text(b"- 1\n- 2\n"), ":1: expected a mapping like 'slots: {max: 4}'; got a list"),
    (make_text(b"just text"), ":1: expected a mapping like 'slots: {max: 4}'; got 'just text'"),
]


@pytest.mark.parametrize("name", ["config.yaml", "config.d/10.yaml"])
@pytest.mark.parametrize(("make", "problem"), ODD_FILES)
def test_an_odd_file_is_refused_at_once(
    make: Callable[[Path], object], problem: str, name: str, instance: Instance
) -> None:
    """Pipes, directories, devices, giants and other texts than UTF-8 YAML: each has its sentence, nothing waits."""
    (instance.home / "config.d").mkdir()
    make(instance.home / name)
    (found,) = instance.problems()
    assert found.startswith(f"{name}{problem}")


def test_a_file_of_the_largest_size_is_read(instance: Instance) -> None:
    """The limit itself is allowed."""
    text = b"slots: {max: 5} #"
    instance.write(text + b"x" * (LIMIT - len(text)))
    assert instance.config().slots.max == 5


def test_a_link_is_followed(instance: Instance) -> None:
    """Configuration is often managed with links."""
    instance.write("slots: {max: 5}", "elsewhere.yaml")
    (instance.home / "config.yaml").symlink_to("elsewhere.yaml")
    assert instance.config().slots.max == 5


def test_a_named_file_must_be_there(instance: Instance) -> None:
    """Who names a file wants it read; who does not may have none."""
    assert instance.problems() == []
    assert instance.problems(FAIRLEAD_CONFIG="yes") == ["config.yaml: it cannot be read: No such file or directory"]


def test_a_file_in_the_place_of_a_directory_is_told(instance: Instance) -> None:
    """Neither config.d nor the way to config.yaml can be a file."""
    instance.write("x", "config.d")
    assert instance.problems() == ["config.d: it cannot be read: Not a directory"]
    below = Instance(instance.write("x", "file"))
    assert [problem.partition(": ")[2] for problem in below.problems()] == ["it cannot be read: Not a directory"] * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slots: &a {max: 5}\nlimits: *a", "2: limits: aliases (*) are not allowed; write the value out"),
        ("slots: {max: !!int '5'}", "1: slots.max: tags (!) are not allowed; remove it"),
        ("slots: !!python/object:os.system {max: 5}", "1: slots: tags (!) are not allowed; remove it"),
        ("slots: {max: 5}\nslots: {max: 6}", "2: slots: this key is already there, at config.yaml:1"),
        ("slots: {max: 5}\n---\nslots: {max: 6}", "2: only one document is allowed in a file; remove what follows ---"),
        ("operators: [alice, &a bob, *a]", "1: operators[2]: aliases (*) are not allowed; write the value out"),
        (
            "slots: {max: 9223372036854775808}",
            "1: slots.max: this number does not fit 64 bits; write it in quotes if it is text",
        ),
        (
            f"slots: {{max: {'9' * 5000}}}",
            "1: slots.max: this number does not fit 64 bits; write it in quotes if it is text",
        ),
        (
            "limits: {grace: 1e999}",
            "1: limits.grace: this number does not fit 64 bits; write it in quotes if it is text",
        ),
        ("<<: {slots: {max: 5}}", "1: <<: unknown key"),
    ],
)
def test_clever_yaml_is_refused(text: str, problem: str, instance: Instance) -> None:
    """Aliases, tags, repeated keys, several documents and giant numbers are told with their line."""
    found = [line.replace(str(instance.home) + "/", "") for line in instance.problems_of(text)]
    assert f"config.yaml:{problem}" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("7: x", "1: this key is 7, not text; write it in quotes"),
        ("true: x", "1: this key is true, not text; write it in quotes"),
        ("~: x", "1: this key is null, not text; write it in quotes"),
        ("? [a, b]\n: x", "1: this key is a list, not text; write it in quotes"),
        ("slots: {{max: 5}: x}", "1: slots: this key is a mapping, not text; write it in quotes"),
        ("agents: {x: {command: [x, {{prompt}}]}}", "1: agents.x.command[1]: this key is a mapping, not text; write"),
    ],
)
def test_a_key_is_text(text: str, problem: str, instance: Instance) -> None:
    """What else YAML allows as a key is refused in plain words."""
    assert instance.problems_of(text)[0].startswith(f"config.yaml:{problem}")


@pytest.mark.parametrize("opening", ["[", "{", "{a: ", "- ", "? ", "[{", "? - "])
def test_deep_nesting_is_refused(opening: str, instance: Instance) -> None:
    """However it is nested, in values or in keys, it ends with a sentence and not with the stack."""
    (found,) = instance.problems_of(opening * 20_000)
    assert found == "config.yaml:1: it is nested more than 16 levels deep"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("0x1f", "0x1f"),
        ("0777", "0777"),
        ("1_000", "1_000"),
        ("80:80", "80:80"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2026-01-01", "2026-01-01"),
        ("5m", "5m"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_a_plain_word_is_what_was_written(written: str, read: object) -> None:
    """Decimal numbers, true, false and null; everything else is text, as in task files."""
    problems: list[Problem] = []
    node = parse(f"key: {written}", lambda line: Origin("here", line), problems)
    assert problems == []
    value = node.value["key"].value
    assert value == read
    assert type(value) is type(read)


def test_every_value_knows_its_line() -> None:
    """Entries are placed by their key, items by themselves."""
    tree = parse("a:\n  b: [1,\n   2]\n", lambda line: Origin("here", line), []).value
    assert tree["a"].origin == Origin("here", 1)
    assert tree["a"].value["b"] == Node([Node(1, Origin("here", 2)), Node(2, Origin("here", 3))], Origin("here", 2))


@given(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
    | st.text("{}[]:,-?&*!|>'\"%@ \n#a1", max_size=60)
)
def test_no_text_makes_it_stumble(text: str) -> None:
    """Whatever is written, there is a value with problems or a refusal, and no other error."""
    problems: list[Problem] = []
    try:
        parse(text, lambda line: Origin("here", line), problems)
    except Unreadable as refusal:
        problems.append(refusal.problem)
    assert all(str(problem).startswith("here:") for problem in problems)


def test_anchors_are_refused(instance: Instance) -> None:
    """What nothing may refer to need not be marked; the word may be meant as text."""
    assert instance.problems_of("slots:\n  max: &most 5\n") == [
        "config.yaml:2: slots.max: anchors (&) are not allowed; remove it, or quote text that begins with &"
    ]


@pytest.mark.parametrize("word", ["TrUe", "nULL", "yes", "0x1f"])
def test_words_mean_what_they_mean_in_task_files(word: str) -> None:
    """One table of words for both: what stays text there stays text here."""
    problems: list[Problem] = []
    assert (
        parse(word, lambda line: Origin("x", line), problems).value
        == parse_yaml(f"a: {word}".encode()).data["a"]
        == word
    )
    assert problems == []


def test_without_libyaml_it_reads_the_same(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own parser gives the same values and the same lines, and is no more afraid of depth."""
    monkeypatch.setattr(reading, "Loader", yaml.SafeLoader)
    instance.write("slots:\n  max: 5\noperators: [alice]\n")
    assert instance.config().slots.max == 5
    assert instance.config().operators == ("alice",)
    assert instance.problems_of("slots:\n  max: none\n")[0].startswith("config.yaml:2: slots.max: expected")
    assert instance.problems_of("a: [")[0].startswith("config.yaml:1: it is not valid YAML")
    assert instance.problems_of("[" * 5000) == ["config.yaml:1: it is nested more than 16 levels deep"]
    assert instance.problems(FAIRLEAD__SLOTS__MAX="\udcff\x00")[-1].startswith(
        "FAIRLEAD__SLOTS__MAX: the character U+DCFF"
    )
