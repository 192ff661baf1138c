"""Documents: what is read, what is refused, and where the refusal points."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.queue import documents
from fairlead.queue.documents import (
    MAX_DEPTH,
    MAX_YAML_VALUES,
    Document,
    DocumentError,
    parse_json,
    parse_markdown,
    parse_yaml,
)

Parser = Callable[[bytes], Document]
ALL = pytest.mark.parametrize("parse", [parse_yaml, parse_json, parse_markdown])


def refusal(parse: Parser, text: str | bytes) -> str:
    with pytest.raises(DocumentError) as caught:
        parse(text if isinstance(text, bytes) else text.encode())
    return str(caught.value)


def from_yaml(text: str) -> dict[str, Any]:
    return parse_yaml(text.encode()).data


# --- What all formats share ---


@ALL
def test_text_that_is_not_utf8_is_refused_with_its_line(parse: Parser) -> None:
    """A byte that is not UTF-8 is named with the line it stands on."""
    assert refusal(parse, b"a: 1\nb: \xff\n").startswith("line 2: byte 0xff is not UTF-8")


@ALL
def test_nul_is_refused_with_its_line(parse: Parser) -> None:
    """A NUL in the file is refused, not passed on to programs that stop there."""
    assert refusal(parse, b"a: 1\n\0").startswith("line 2: there is a NUL")


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_yaml, "a: b"), (parse_json, '{"a": "b"}'), (parse_markdown, "---\na: b\n---\n")],
)
def test_a_byte_order_mark_is_dropped(parse: Parser, text: str) -> None:
    """Editors that put a byte order mark in front do no harm."""
    assert parse(b"\xef\xbb\xbf" + text.encode()).data == {"a": "b"}


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "---\n", "null\n", "~"])
def test_empty_yaml_is_refused(text: str) -> None:
    """A YAML file that holds nothing is no task."""
    assert "holds nothing" in refusal(parse_yaml, text)


@pytest.mark.parametrize("text", ["", " \n ", "null"])
def test_empty_json_is_refused(text: str) -> None:
    """A JSON file that holds nothing is no task."""
    assert "holds nothing" in refusal(parse_json, text)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_yaml, "- a"),
        (parse_yaml, "word"),
        (parse_json, "[1]"),
        (parse_json, "5"),
        (parse_markdown, "---\n- a\n---\n"),
    ],
)
def test_anything_but_a_mapping_is_refused(parse: Parser, text: str) -> None:
    """A list or a single value at the top is no task."""
    assert "`key: value` pairs" in refusal(parse, text)


def nested(kind: str, depth: int) -> str:
    """A mapping whose collections are nested this deep, the mapping itself included."""
    return {
        "yaml": "a: " + "[" * (depth - 1) + "]" * (depth - 1),
        "block": "a:\n" + " -" * (depth - 1) + " x",
        "json": '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}",
    }[kind]


@pytest.mark.parametrize(("kind", "parse"), [("yaml", parse_yaml), ("block", parse_yaml), ("json", parse_json)])
def test_nesting_is_capped(kind: str, parse: Parser) -> None:
    """The deepest allowed nesting is read, one level more is refused."""
    assert parse(nested(kind, MAX_DEPTH).encode()).data.keys() == {"a"}
    assert f"more than {MAX_DEPTH} deep" in refusal(parse, nested(kind, MAX_DEPTH + 1))


@pytest.mark.parametrize("unit", ["[", "{", '{"a":', "- ", "? ", "[a: ", "[[], "])
@ALL
def test_endless_nesting_is_refused_at_once(parse: Parser, unit: str) -> None:
    """A hundred thousand opening brackets neither overflow a stack nor take long."""
    began = time.process_time()
    front = b"---\n" if parse is parse_markdown else b""
    refusal(parse, front + unit.encode() * 100_000 + b"\n---\n")
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"%TAG !{i}! b\n" for i in range(80_000)),
        "a: 1\n...\n" + "".join(f"%TAG !{i}! b\n" for i in range(80_000)),
        "a: [" + "1," * 400_000 + "]",
        "".join(f"k{i}: 1\n" for i in range(80_000)),
        "---\n" * 200_000,
        "a: " + "9" * 1_000_000,
        "".join(" " * i + "a:\n" for i in range(1400)),
        "a" * 1_000_000 + ": 1",
    ],
)
def test_a_large_hostile_yaml_file_is_refused_soon(text: str) -> None:
    """What would keep a YAML reader busy for long is refused within a moment."""
    began = time.process_time()
    refusal(parse_yaml, text)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + "9" * 1_000_000 + "}",
        '{"a": 0.' + "1" * 1_000_000 + "}",
        '{"a": [' + "1," * 100_000 + "1e999]}",
    ],
)
def test_a_large_hostile_json_file_is_refused_soon(text: str) -> None:
    """Endless numbers and lists cost a moment at most."""
    began = time.process_time()
    refusal(parse_json, text)
    assert time.process_time() - began < 2.0


INTEGERS = [
    (0, True),
    (-1, True),
    ((1 << 63) - 1, True),
    (-(1 << 63), True),
    (1 << 63, False),
    (-(1 << 63) - 1, False),
    (10**50, False),
]


@pytest.mark.parametrize(("number", "fits"), INTEGERS)
def test_integers_have_64_bits(number: int, fits: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Integers are read up to 64 bits, in YAML and JSON alike."""
    texts: list[tuple[Parser, str]] = [(parse_yaml, f"a: {number}"), (parse_json, f'{{"a": {number}}}')]
    for parse, text in texts:
        if fits:
            assert parse(text.encode()).data == {"a": number}
        else:
            assert "does not fit 64 bits" in refusal(parse, text)


def test_numbers_have_at_most_forty_characters() -> None:
    """More digits than any number of 64 bits has are no number: they would be rounded silently."""
    assert from_yaml("a: 0." + "1" * 38) == {"a": 1 / 9}
    assert "does not fit" in refusal(parse_yaml, "a: 0." + "1" * 39)


def test_a_number_too_long_to_print_is_shortened() -> None:
    """The message about an endless number is itself short."""
    assert len(refusal(parse_yaml, "a: " + "9" * 5000)) < 200


# --- YAML ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-0.5E-1", -0.05),
    ],
)
def test_yaml_reads_what_json_would_read(text: str, value: object) -> None:
    """Plain scalars that JSON knows, and null and the booleans as people spell them, mean what JSON says."""
    read = from_yaml(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "no",
            "yes",
            "on",
            "off",
            "y",
            "n",
            "Yes",
            "2026-01-31",
            "2026-01-31T10:00:00",
            "12:30",
            "0644",
            "007",
        ),
        *(
            "0x1F",
            "0o17",
            "1_000",
            ".5",
            "1.",
            "+1",
            ".nan",
            ".inf",
            "-.inf",
            "nan",
            "<<",
            "=",
            "\u0661",
            "--",
        ),
    ],
)
def test_yaml_leaves_text_as_text(text: str) -> None:
    """None of YAML 1.1's surprises: what JSON would not read as a value stays text."""
    assert from_yaml(f"a: {text}") == {"a": text}


def test_yaml_keys_may_be_words_like_on_and_no() -> None:
    """`on` and `no` are keys as any other text is."""
    assert from_yaml("on: 1\nno: 2") == {"on": 1, "no": 2}


@pytest.mark.parametrize("text", ['"1"', "'true'", '"null"', '""', "|\n  12\n", ">-\n  12\n"])
def test_quoted_and_block_text_is_text(text: str) -> None:
    """Whoever writes quotes or a block means text."""
    assert isinstance(from_yaml(f"a: {text}")["a"], str)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "12e4567"])
def test_yaml_numbers_beyond_all_bounds_are_refused(number: str) -> None:
    """Infinity cannot come in through a large exponent."""
    assert "put it in quotes" in refusal(parse_yaml, f"a: {number}")


def test_yaml_collections_nest() -> None:
    """Lists and mappings come out as they were written, in block and flow style."""
    assert from_yaml("a:\n- b: 1\n  c: [x, {d: e}]\n-\n- - 2\nf: {}\n") == {
        "a": [{"b": 1, "c": ["x", {"d": "e"}]}, None, [2]],
        "f": {},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\n", "line 1, column 4: anchors are not allowed"),
        ("a: &x [1]\n", "line 1, column 4: anchors are not allowed"),
        ("b: 1\na: *x\n", "line 2, column 4: aliases are not allowed"),
        ("a: [*.txt]\n", "quote text that begins with * or &"),
        ("a: !!python/object:os.system {}\n", "line 1, column 4: tags are not allowed"),
        ("a: !!str 1\n", "line 1, column 4: tags are not allowed"),
        ("a: ! 1\n", "line 1, column 4: tags are not allowed"),
        ("a: !x!y 1\n", "quote text that begins with !"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", "line 1: %TAG is not allowed"),
        ("a: 1\n...\n%TAG ! tag:x,2000:\n---\n", "line 3: %TAG is not allowed"),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' appears twice"),
        ("a:\n  b: 1\n  'b': 1\n", "line 3, column 3: the key 'b' appears twice"),
        ("1: a\n", "line 1, column 1: keys must be text"),
        ("true: a\n", "keys must be text"),
        ("? [a]\n: b\n", "line 1, column 3: keys must be text"),
        ("? {a: b}\n: b\n", "keys must be text"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins here"),
        ('a: 1\nb: "\\0"\n', "line 2, column 4: there is a NUL"),
        ('"\\0": 1\n', "there is a NUL"),
        ('a: "\\ud800"\n', "invalid Unicode character escape"),
        ("a: b: c\n", "line 1, column 5: not valid YAML: mapping values are not allowed"),
        ("a:\n\tb: c\n", "line 2: not valid YAML: a tab cannot indent; use spaces"),
        ("a: @home\n", "quote text that begins with @"),
        ("x: 1\na: 'x\n", "while scanning a quoted scalar that begins on line 2"),
        ("a: [1\n", "check the indentation, quotes and brackets"),
        ("é: 1\nb: \x07\n", "line 2: not valid YAML: control characters are not allowed"),
    ],
)
def test_yaml_refusals(text: str, message: str) -> None:
    """Each refusal of YAML says what is wrong, where, and what to do."""
    assert message in refusal(parse_yaml, text)


def test_an_error_without_a_place_is_still_told() -> None:
    """If the YAML reader does not know where, the message comes without a line."""
    error = documents._yaml_error(yaml.MarkedYAMLError(problem="lost"), "")
    assert str(error) == "not valid YAML: lost; check the indentation, quotes and brackets"
    assert error.line is None


def test_a_yaml_version_line_is_allowed() -> None:
    """`%YAML 1.2` says nothing new and is let through."""
    assert from_yaml("%YAML 1.2\n---\na: no\n") == {"a": "no"}


def test_yaml_values_are_capped() -> None:
    """The largest allowed number of values is read, one more is refused."""
    items = MAX_YAML_VALUES - 3  # the mapping, its key and its list are values too
    assert len(from_yaml("a: [" + "1," * items + "]")["a"]) == items
    assert f"more than {MAX_YAML_VALUES} values" in refusal(parse_yaml, "a: [" + "1," * (items + 1) + "]")


# --- Lines ---

YAML_LINES = b"a: 1\n\nb:\n  c: 1\n  d:\n    e: 1\nf:\n- 1\n- g: 1\n"
JSON_LINES = b'{"a": 1,\n\n"b": {\n  "c": 1,\n  "d": {\n"e": 1}},\n"f": [\n1,\n{"g": 1}]}'


@pytest.mark.parametrize(("parse", "text"), [(parse_yaml, YAML_LINES), (parse_json, JSON_LINES)])
def test_keys_and_items_have_their_lines(parse: Parser, text: bytes) -> None:
    """A key, a key below it and a list's item are found on their lines."""
    document = parse(text)
    places = [("a",), ("b",), ("b", "c"), ("b", "d"), ("f",), ("f", 0), ("f", 1)]
    assert [document.line_of(*place) for place in places] == [1, 3, 4, 5, 7, 8, 9]


@pytest.mark.parametrize(("parse", "text"), [(parse_yaml, YAML_LINES), (parse_json, JSON_LINES)])
def test_what_has_no_line_has_that_of_what_holds_it(parse: Parser, text: bytes) -> None:
    """A place that is not in the file is answered with the nearest one above, or nothing."""
    document = parse(text)
    assert document.line_of("b", "x") == 3
    assert document.line_of("x", "y") is None
    assert document.line_of() is None


def test_items_of_a_list_within_a_list_have_no_line_of_their_own() -> None:
    """A file that is a list of lists has no keys to point at, and is refused without stumbling."""
    assert "pairs" in refusal(parse_yaml, "- - a\n  - b\n")


def test_json_lines_understand_escaped_keys() -> None:
    """A key is found however its letters were written."""
    assert parse_json(b'{\n"\\u0061\\"": "x, ] }",\n"b": "\\\\"}').line_of('a"') == 2


# --- JSON ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": NaN}', "line 1: NaN is not a JSON value"),
        ('{"a":\n-Infinity}', "line 1: -Infinity is not a JSON value"),
        ('{"a": [\n1,\nInfinity]}', "line 3: Infinity is not a JSON value"),
        ("NaN", "line 1: NaN is not a JSON value"),
        ('{"a": 1,\n"b": 2,\n"a": 3}', "line 3: the key 'a' appears twice"),
        ('{"x": {"a": 1,\n"\\u0061": 2,\n"a": 3}}', "line 2: the key 'a' appears twice"),
        ('{"x": [{"a": 1, "a": {"b": 1, "b": 2}}]}', "line 1: the key 'a' appears twice"),
        ('{"a": 1e999}', "the number 1e999 does not fit"),
        ('{"a":\n"\\ud800"}', "line 1: there is a NUL character or half of a surrogate pair"),
        ('{"a": ["x",\n"\\udc00\\ud800"]}', "line 2: there is a NUL character or half"),
        ('{"b": 1,\n"\\ud800": 1}', "line 2: there is a NUL character or half"),
        ('{"\\ud800": {}}', "line 1: there is a NUL character or half"),
        ('{"a": "\\u0000"}', "there is a NUL character or half"),
        ('{"a": 1,\n}', "line 2, column 1: not valid JSON: Expecting property name"),
        ("{'a': 1}", "line 1, column 2: not valid JSON"),
        ('{"a": "x\ny"}', "line 1, column 9: not valid JSON: Invalid control character"),
        ('{"a": 1} {"b": 2}', "not valid JSON: Extra data"),
        ('{"a": 01}', "not valid JSON"),
        ('{"a": 1 // no\n}', "comments and a comma before a bracket are not allowed"),
    ],
)
def test_json_refusals(text: str, message: str) -> None:
    """Each refusal of JSON says what is wrong, where, and what to do."""
    assert message in refusal(parse_json, text)


def test_json_surrogate_pairs_are_one_character() -> None:
    """An escaped pair is a character outside the basic plane, and welcome."""
    assert parse_json(b'{"a": "\\ud83d\\ude00"}').data == {"a": "\U0001f600"}


# --- Markdown ---


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("Fix it.\n", {"prompt": "Fix it."}),
        ("\n\n    code first\n\ntext  \n\n", {"prompt": "    code first\n\ntext"}),
        ("---\nagent: claude\n---\nFix it.\n", {"agent": "claude", "prompt": "Fix it."}),
        ("---\r\nagent: claude\r\n---\r\n\r\nFix\r\nit.\r\n", {"agent": "claude", "prompt": "Fix\nit."}),
        ("--- \nagent: claude\n---\t\n", {"agent": "claude"}),
        ("---\nagent: claude\n---", {"agent": "claude"}),
        ("---\nprompt: here\n---\n \n", {"prompt": "here"}),
        ("---\n---\nFix it.\n\n---\n\nmore", {"prompt": "Fix it.\n\n---\n\nmore"}),
        ("---\n# nothing\n---\nFix it.", {"prompt": "Fix it."}),
        ("----\nnot front matter", {"prompt": "----\nnot front matter"}),
        (" ---\na: 1\n---\n", {"prompt": " ---\na: 1\n---"}),
        ("Text: [with, *yaml", {"prompt": "Text: [with, *yaml"}),
        ("", {}),
    ],
)
def test_markdown_is_front_matter_and_prompt(text: str, data: dict[str, Any]) -> None:
    """What stands between the first two `---` lines are fields, the rest is the prompt."""
    assert parse_markdown(text.encode()).data == data


@pytest.mark.parametrize("text", ["---\na: 1\n", "---", "---\na: 1\n----\nx", "---\na: 1\n ---\n"])
def test_front_matter_must_end(text: str) -> None:
    """Front matter without its closing line is not taken for a prompt."""
    assert refusal(parse_markdown, text).startswith("line 1: the front matter that begins here has no end")


def test_a_prompt_stands_in_one_place() -> None:
    """A prompt in the front matter and text below it contradict each other."""
    message = refusal(parse_markdown, "---\nprompt: a\n---\n\nb\n")
    assert message == "line 5: the prompt stands in the front matter and below it; keep one of them"


def test_markdown_lines_are_those_of_the_file() -> None:
    """Lines count from the top of the file, for fields and for the prompt."""
    document = parse_markdown(b"---\na: 1\nb: 2\n---\n\n\nFix it.\n")
    assert [document.line_of(key) for key in ("a", "b", "prompt")] == [2, 3, 7]
    assert parse_markdown(b"---\na: 1\nb: 2\n---\n").line_of("b") == 3


def test_an_error_in_front_matter_has_the_line_of_the_file() -> None:
    """The front matter's own errors point into the file as well."""
    assert refusal(parse_markdown, "---\na: 1\nb: *x\n---\n").startswith("line 3, column 4: aliases")


# --- Whatever comes ---

SNIPPETS = st.sampled_from(
    [
        *(
            "---",
            "\n",
            "a",
            ": ",
            "- ",
            "? ",
            "[",
            "]",
            "{",
            "}",
            ",",
            '"',
            "'",
            "&x",
            "*x",
            "!",
            "!!str",
            "|",
            ">",
        ),
        *(
            "#",
            "%TAG",
            "%YAML 1.1",
            "...",
            "<<",
            "\t",
            " ",
            "\r",
            "\\u0000",
            "\\ud800",
            "\ufeff",
            "\x85",
            "\u2028",
        ),
        *("1e999", "NaN", "true", "null", "9" * 30, "prompt", "é", "\0", "\x07", '{"a":', '"a":', "@", "`"),
    ]
)
SOUP = st.lists(SNIPPETS, max_size=40).map(lambda parts: "".join(parts).encode())


@ALL
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")) | SOUP)
@example(data=b"\xef\xbb\xbf\xef\xbb\xbf")
def test_whatever_comes_is_data_or_a_document_error(parse: Parser, data: bytes) -> None:
    """No bytes raise anything but a DocumentError, and what is read is plain, finite and clean."""
    with suppress(DocumentError):
        document = parse(data)
        text = json.dumps(document.data, allow_nan=False, ensure_ascii=False)
        assert "\\u0000" not in text.replace("\\\\", "")
        assert text.encode()
        assert all(document.line_of(key) for key in document.data)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of lists and mappings of these leaves."""
    values = st.recursive(
        leaves,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3),
        max_leaves=10,
    )
    return st.dictionaries(TEXT, values, min_size=1, max_size=4)


@given(data=trees(st.none() | st.booleans() | NUMBERS | TEXT))
def test_all_json_is_read_as_python_reads_it(data: dict[str, Any]) -> None:
    """Strictness costs nothing: every clean value comes back as it was written."""
    assert parse_json(json.dumps(data).encode()).data == data


@given(data=trees(TEXT))
def test_quoted_yaml_comes_back_as_it_was_written(data: dict[str, Any]) -> None:
    """What a YAML writer quotes has the same meaning here, in every script."""
    text = yaml.safe_dump(data, default_style='"', allow_unicode=True)
    assert parse_yaml(text.encode()).data == data
