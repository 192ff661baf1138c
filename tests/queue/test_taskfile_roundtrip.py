"""Task files: what is rendered reads back the same, and no bytes break the reader."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.base.clock import iso
from fairlead.base.text import one_line
from fairlead.config.schema import Agent, Config, Project
from fairlead.queue.task import PRIORITIES, Spec
from fairlead.queue.taskfile import KEYS, TaskFileError, parse_task

CONFIG = Config(
    agents={
        "worker": Agent(command=("work", "{task_file}")),
        "shell": Agent(command=("sh", "-c", "{prompt}")),
    },
    projects={"site": Project(path="/srv/site", owner="wanda", agent="shell", priority="low")},
    default_user="dora",
)

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
LINE = TEXT.filter(lambda text: text.splitlines() in ([], [text]))
NAME = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", fullmatch=True)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUE = st.recursive(
    SCALAR, lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3), max_leaves=8
)
WORK = st.one_of(
    st.fixed_dictionaries({"prompt": TEXT.filter(str.strip)}),
    st.fixed_dictionaries({"command": st.lists(TEXT, max_size=3).map(lambda words: ("run", *words)), "prompt": TEXT}),
    st.fixed_dictionaries(
        {"payload": st.dictionaries(TEXT, VALUE, min_size=1, max_size=3), "agent": st.just("worker")}
    ),
)
REST = st.fixed_dictionaries(
    {
        "user": NAME,
        "project": st.sampled_from(["default", "site"]),
        "agent": st.sampled_from(["worker", "shell"]),
        "action": NAME,
        "priority": st.integers(0, 3),
        "title": LINE,
        "source": LINE,
    },
    optional={
        "payload": st.dictionaries(TEXT, VALUE, max_size=3),
        "run_at": st.none() | st.integers(0, 32_503_679_999_999),
        "timeout": st.none() | st.floats(0, 1e10, exclude_min=True, exclude_max=True),
        "grace": st.none() | st.floats(0, 1e10, exclude_max=True),
        "idempotent": st.booleans(),
        "env": st.dictionaries(st.from_regex(r"[A-EG-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), TEXT, max_size=3),
        "artifacts": st.lists(st.sampled_from(["out/*.txt", "é", "a b", "\n"]), max_size=3).map(tuple),
    },
)


def render_task(spec: Spec) -> bytes:
    """A JSON task file that says all that a Spec does."""
    record = {
        "title": spec.title,
        "user": spec.user,
        "project": spec.project,
        "agent": spec.agent,
        "action": spec.action,
        "priority": PRIORITIES[spec.priority],
        "source": spec.source,
        "run_at": iso(spec.run_at),
        "timeout": spec.timeout,
        "grace": spec.grace,
        "idempotent": spec.idempotent,
        "prompt": spec.prompt or None,
        "command": spec.command or None,
        "payload": spec.payload or None,
        "env": spec.env or None,
        "artifacts": spec.artifacts or None,
    }
    given = {key: value for key, value in record.items() if value is not None}
    return json.dumps(given).encode()


@given(rest=REST, work=WORK)
def test_a_rendered_task_reads_back_as_the_same(rest: dict[str, Any], work: dict[str, Any]) -> None:
    """Whatever is in the queue can be written as a file and enter it again, unchanged and without remarks."""
    spec = Spec(submitter="olga", **(rest | work))
    parsed = parse_task(render_task(spec), "again.json", "olga", CONFIG, 0)
    assert parsed.spec == spec
    assert parsed.notes == ()


def test_no_grace_at_all_is_not_forgotten() -> None:
    """A grace of 0 is a wish, not an absent one."""
    spec = Spec(user="u", project="site", agent="shell", action="a", prompt="go", grace=0.0)
    assert parse_task(render_task(spec), "again.json", "olga", CONFIG, 0).spec.grace == 0.0


NAMES = st.sampled_from(["t.yaml", "t.yml", "t.json", "t.md", "t.markdown", "t.txt"])
WORDS = st.sampled_from(
    [
        *(f"{key}: " for key in KEYS),
        *(f'"{key}": ' for key in KEYS),
        *(
            "\n",
            "\n  ",
            "---\n",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "- ",
            "1",
            "-1",
            "true",
            "null",
            '"',
            "'",
            "go",
            "é",
        ),
        *(
            "+2h",
            "2030-01-01",
            "2030-01-01T00:00Z",
            "1h30m",
            "shell",
            "worker",
            "site",
            "/etc",
            "..",
            "*",
            "\x1b",
        ),
        *PRIORITIES,
    ]
)
FILES = st.binary(max_size=100) | TEXT.map(str.encode) | st.lists(WORDS, max_size=30).map("".join).map(str.encode)


@settings(max_examples=300)
@given(data=FILES, name=NAMES)
def test_whatever_comes_is_a_task_or_a_task_file_error(data: bytes, name: str) -> None:
    """No bytes raise anything but a TaskFileError, which can be written to a file."""
    try:
        parse_task(data, name, "olga", CONFIG, 0)
    except TaskFileError as error:
        report = str(error).encode().decode().splitlines()
    else:
        return
    assert report[0].startswith(f"{name}: ")
    assert all(line.startswith("  ") and line == one_line(line, len(line)) for line in report[1:])


@settings(max_examples=300)
@given(data=st.dictionaries(st.sampled_from(KEYS), VALUE | TEXT, max_size=6))
def test_whatever_values_the_keys_have_nothing_breaks(data: dict[str, Any]) -> None:
    """Every key takes every kind of value or refuses it in order."""
    with suppress(TaskFileError):
        parse_task(json.dumps(data).encode(), "t.json", "olga", CONFIG, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.yaml", "prompt: go\npayload: " + "[" * 100_000),
        ("t.json", '{"payload": ' + '{"a":' * 100_000),
        ("t.md", "-" * 1_000_000),
        ("t.md", "---\n" + "- " * 100_000 + "\n---\n"),
        ("t.md", "---\n" + " \n" * 400_000),
        ("t.md", " " * 1_000_000),
        ("t.json", '{"prompt": "' + "x" * 1_000_000 + '"}'),
        ("t.json", '{"title": "' + "\\n" * 400_000 + '"}'),
        ("t.json", '{"run_at": "' + "1" * 1_000_000 + '"}'),
        ("t.json", '{"prompt": "go", "priority": "' + "hgih" * 200_000 + '"}'),
        ("t.json", '{"' + "promt" * 200_000 + '": 1}'),
        ("t.json", '{"prompt": "go", "env": {"' + "A" * 1_000_000 + '-": ""}}'),
        ("t.json", '{"command": [' + '"",' * 100_000 + "1.5]}"),
    ],
)
def test_hostile_files_cost_a_moment_at_most(name: str, text: str) -> None:
    """A file of a megabyte that means harm is dealt with before anybody notices."""
    began = time.process_time()
    with suppress(TaskFileError):
        parse_task(text.encode(), name, "olga", CONFIG, 0)
    assert time.process_time() - began < 2.0
