"""Bytes that somebody wrote become plain data, or an error that says what is wrong and where.

Three formats, one result: a mapping with text keys whose values JSON could hold. Nothing in a file can
make reading it slow, deep or surprising: no stack grows with the nesting, no value refers to another, and
what the eye takes for text stays text. (docs/task-file.md has the rules for people.)
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import yaml

from fairlead.base.errors import UsageError
from fairlead.base.scalars import LONGEST_NUMBER, Loader, TooLargeError, number, plain_value
from fairlead.base.text import line_of_tag_directive

#: Collections within collections; the document itself is the first.
MAX_DEPTH = 32
#: Values and keys in one YAML file: its reader is the slow one, and this bounds its time.
MAX_YAML_VALUES = 50_000
#: A JSON file with more characters is refused without the line: to find it would take seconds, and others wait.
MAX_SEARCHED = 100_000

Path = tuple[str | int, ...]
Lines = dict[Path, int]


class DocumentError(UsageError):
    """The file cannot be read."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        self.line = line
        place = f"line {line}, column {column}: " if column else f"line {line}: " if line else ""
        super().__init__(place + message)


class Document:
    """A file's mapping, and the lines on which its keys stand."""

    def __init__(self, data: dict[str, Any], find_lines: Callable[[], Lines]) -> None:
        self.data = data
        self._find_lines = find_lines

    def line_of(self, *path: str | int) -> int | None:
        """The line of a key, or of an item below it; the nearest known one above where it has none."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)

    @cached_property
    def _lines(self) -> Lines:
        """Found when first asked for: most files have no error."""
        return self._find_lines()


def parse_yaml(data: bytes) -> Document:
    """Read YAML: one document without anchors, aliases and tags, whose plain scalars mean what JSON's do."""
    builder = _build_yaml(_decode(data))
    return Document(_mapping(builder.root), lambda: builder.lines)


def parse_json(data: bytes) -> Document:
    """Read JSON as its standard has it: no NaN, no key twice."""
    text = _decode(data)
    root = _load_json(text)
    return Document(_mapping(root), lambda: dict(_json_places(text)) if len(text) <= MAX_SEARCHED else {})


def parse_markdown(data: bytes) -> Document:
    """Read Markdown: YAML between two `---` lines at the very top, if it starts so; the rest is `prompt`."""
    text = _decode(data)
    start, end = _front_matter(text)
    # The opening line goes along, so that YAML counts the lines as the file has them.
    builder = _build_yaml(text[:start])
    fields = {} if builder.root is None else _mapping(builder.root)
    blank = _BLANK_LINES.match(text, end)
    begin = blank.end() if blank else end
    body = text[begin:].rstrip().replace("\r\n", "\n")
    line = text.count("\n", 0, begin) + 1
    if body and "prompt" in fields:
        raise DocumentError("the prompt stands in the front matter and below it; keep one of them", line)
    if not body:
        return Document(fields, lambda: builder.lines)
    return Document({**fields, "prompt": body}, lambda: {**builder.lines, ("prompt",): line})


# --- What all formats share ---

_UNCLEAN = re.compile("[\0\ud800-\udfff]")


def _decode(data: bytes) -> str:
    """UTF-8 and nothing else; a byte order mark in front is dropped."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"byte {data[error.start]:#x} is not UTF-8; save the file as UTF-8", line) from None
    if (at := text.find("\0")) >= 0:
        raise DocumentError("there is a NUL character; remove it", text.count("\n", 0, at) + 1)
    return text


def _mapping(root: object) -> dict[str, Any]:
    if root is None:
        raise DocumentError("the file holds nothing; write at least one `key: value`")
    if not isinstance(root, dict):
        raise DocumentError("the file must hold `key: value` pairs, not a list or a single value", 1)
    return root


def _too_large(text: str) -> str:
    shown = text if len(text) <= LONGEST_NUMBER else text[:LONGEST_NUMBER] + "…"
    return f"the number {shown} does not fit 64 bits; put it in quotes to make it text"


_TOO_DEEP = f"lists and mappings are nested more than {MAX_DEPTH} deep; make it flatter"
_NOT_TEXT = "there is a NUL character or half of a surrogate pair in the text; remove it"


# --- YAML ---

_TAB = "a tab cannot indent; use spaces"
_HINTS = {
    "mapping values are not allowed in this context": "quote text that contains ': '; check the indentation",
    "found character that cannot start any token": "quote text that begins with @, % or `; indent by spaces",
    "did not find expected alphabetic or numeric character": "quote text that begins with * or &",
    "found undefined tag handle": "quote text that begins with !",
}


def _build_yaml(text: str) -> "_YamlBuilder":
    if line := line_of_tag_directive(text):
        raise DocumentError("%TAG is not allowed here; remove this line", line)
    builder = _YamlBuilder()
    for event in _yaml_events(text):
        builder.take(event)
    return builder


def _yaml_events(text: str) -> Iterator[yaml.Event]:
    """The parser's events: unlike its composer, it needs no stack for nested collections."""
    parser = Loader(text)
    try:
        while (event := parser.get_event()) is not None:
            yield event
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error, text) from None
    except yaml.reader.ReaderError as error:
        line = text.encode().count(b"\n", 0, error.position) + 1
        raise DocumentError(f"not valid YAML: {error.reason}; remove them", line) from None
    finally:
        parser.dispose()


def _yaml_error(error: yaml.MarkedYAMLError, text: str) -> DocumentError:
    mark, start = error.problem_mark, error.context_mark
    if mark and _is_indented_by_tab(text, mark.line):
        return DocumentError(f"not valid YAML: {_TAB}", mark.line + 1)
    hint = _HINTS.get(error.problem or "", "check the indentation, quotes and brackets")
    context = f" {error.context} that begins on line {start.line + 1}" if error.context and start else ""
    message = f"not valid YAML: {error.problem}{context}; {hint}"
    return DocumentError(message, mark.line + 1, mark.column + 1) if mark else DocumentError(message)


def _is_indented_by_tab(text: str, line: int) -> bool:
    lines = text.split("\n", line + 1)
    return line < len(lines) and re.match(" *\t", lines[line]) is not None


class _YamlBuilder:
    """Makes plain data of YAML events."""

    def __init__(self) -> None:
        self.root: Any = None
        self.lines: Lines = {}
        #: The key of the document itself that was read last.
        self._field = ""
        self._documents = 0
        self._values = 0
        #: The collections that are open, and for each the key that waits for its value.
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []

    def take(self, event: yaml.Event) -> None:
        """Take in the next event; streams' starts and ends say nothing."""
        if handle := _HANDLERS.get(type(event)):
            handle(self, event)

    def document(self, event: yaml.Event) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _at(event, "a second document begins here; one file holds one task")

    def alias(self, event: yaml.Event) -> None:
        raise _at(event, "aliases are not allowed; write the value out, or quote text that begins with *")

    def scalar(self, event: yaml.ScalarEvent) -> None:
        if "\0" in event.value:
            raise _at(event, _NOT_TEXT)
        self._put(_plain(event) if event.style == "" else event.value, event)

    def mapping(self, event: yaml.MappingStartEvent) -> None:
        self._begin({}, event)

    def sequence(self, event: yaml.SequenceStartEvent) -> None:
        self._begin([], event)

    def end(self, _: yaml.Event) -> None:
        self._open.pop()
        self._keys.pop()

    def _begin(self, collection: dict[str, Any] | list[Any], event: yaml.NodeEvent) -> None:
        self._put(collection, event)
        if len(self._open) == MAX_DEPTH:
            raise _at(event, _TOO_DEEP)
        self._open.append(collection)
        self._keys.append(None)

    def _put(self, value: Any, event: Any) -> None:  # noqa: ANN401 - any value, and the stubs' events lack fields
        """The value goes where the innermost open collection wants it: as an item, a key, or its value."""
        self._check(event)
        if not self._open:
            self.root = value
            return
        within = self._open[-1]
        if isinstance(within, list):
            self._note_line(len(within), event)
            within.append(value)
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = self._new_key(value, within, event)
        else:
            within[key] = value
            self._keys[-1] = None

    def _check(self, event: Any) -> None:  # noqa: ANN401 - see _put
        self._values += 1
        if self._values > MAX_YAML_VALUES:
            raise _at(event, f"there are more than {MAX_YAML_VALUES} values; write them as JSON")
        if event.anchor is not None:
            raise _at(event, "anchors are not allowed; remove it, or quote text that begins with &")
        if event.tag is not None:
            raise _at(event, "tags are not allowed; remove it, or quote text that begins with !")

    def _new_key(self, key: Any, within: dict[str, Any], event: yaml.Event) -> str:  # noqa: ANN401 - see _put
        if not isinstance(key, str):
            raise _at(event, "keys must be text; put this one in quotes")
        if key in within:
            raise _at(event, f"the key {key!r:.60} appears twice; keep one")
        self._note_line(key, event)
        return key

    def _note_line(self, last: str | int, event: Any) -> None:  # noqa: ANN401 - see _put
        """Two levels are enough to point at: a field, and an item of it."""
        line = event.start_mark.line + 1
        if len(self._open) == 1:
            self._field = str(last)
            self.lines[(last,)] = line
        elif len(self._open) == 2:  # noqa: PLR2004 - see above
            self.lines[self._field, last] = line


_HANDLERS: dict[type, Callable[[_YamlBuilder, Any], None]] = {
    yaml.DocumentStartEvent: _YamlBuilder.document,
    yaml.AliasEvent: _YamlBuilder.alias,
    yaml.ScalarEvent: _YamlBuilder.scalar,
    yaml.MappingStartEvent: _YamlBuilder.mapping,
    yaml.SequenceStartEvent: _YamlBuilder.sequence,
    yaml.MappingEndEvent: _YamlBuilder.end,
    yaml.SequenceEndEvent: _YamlBuilder.end,
}


def _plain(event: yaml.ScalarEvent) -> Any:  # noqa: ANN401 - whatever the scalar means
    try:
        return plain_value(event.value)
    except TooLargeError:
        raise _at(event, _too_large(event.value)) from None


def _at(event: Any, message: str) -> DocumentError:  # noqa: ANN401 - the stubs' events lack marks
    return DocumentError(message, event.start_mark.line + 1, event.start_mark.column + 1)


# --- Markdown ---

_OPENING = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
_CLOSING = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)+")


def _front_matter(text: str) -> tuple[int, int]:
    """Where the closing line of the front matter starts and ends; 0 and 0 if there is none."""
    opening = _OPENING.match(text)
    if not opening:
        return 0, 0
    closing = _CLOSING.search(text, opening.end())
    if not closing:
        raise DocumentError("the front matter that begins here has no end; close it with a line `---`", 1)
    return closing.span()


# --- JSON ---


class _Refused:
    """Stands in the data for what may not be there, until its place in the file is known."""

    def __init__(self, message: str, key: str | None = None) -> None:
        self.message = message
        self.key = key


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return _Refused(f"the key {twice!r:.60} appears twice; keep one", twice)


def _json_number(text: str) -> int | float | _Refused:
    try:
        return number(text)
    except TooLargeError:
        return _Refused(_too_large(text))


def _json_constant(name: str) -> _Refused:
    return _Refused(f"{name} is not a JSON value; write a number, a text or null")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_json_object,
    parse_int=_json_number,
    parse_float=_json_number,
    parse_constant=_json_constant,
)


def _load_json(text: str) -> object:
    if not text.strip():
        return None
    try:
        root = _DECODER.decode(text)
    except RecursionError:
        raise DocumentError(_TOO_DEEP) from None
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg}; comments and a comma before a bracket are not allowed"
        raise DocumentError(message, error.lineno, error.colno) from None
    if found := _json_fault(root):
        raise _json_error(text, *found)
    return root


def _json_fault(root: object) -> tuple[Path, _Refused] | None:
    """Something that may not be in the data, with its path; None if all is well."""
    pending: list[tuple[Path, Any]] = [((), [root])]
    while pending:
        path, value = pending.pop()
        if len(path) > MAX_DEPTH:
            return path, _Refused(_TOO_DEEP)
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, dict | list):
                pending.append(((*path, key), child))
            elif isinstance(child, _Refused):
                return (*path, key), child
            elif isinstance(child, str) and _UNCLEAN.search(child):
                return (*path, key), _Refused(_NOT_TEXT)
            if isinstance(key, str) and _UNCLEAN.search(key):
                return (*path, key), _Refused(_NOT_TEXT)
    return None


def _json_error(text: str, path: Path, fault: _Refused) -> DocumentError:
    if len(text) > MAX_SEARCHED:
        return DocumentError(fault.message)
    path = path[1:]  # the walk began one list further out
    if fault.key is not None:
        path = (*path, fault.key)
    lines = [line for place, line in _json_places(text) if place == path]
    # A key that stands twice is wrong at its second place; all else has one, and the document itself none.
    return DocumentError(fault.message, (lines or [1])[:2][-1])


_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],]|[^\s"{}\[\],:]+')


def _json_places(text: str) -> Iterator[tuple[Path, int]]:
    """Every key and every list item of valid JSON with its line."""
    # One entry per open collection: a list's index, or an object's key, None while it waits for one.
    path: list[Any] = []
    line = seen = 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", seen, token.start())
        seen, word = token.start(), token[0]
        if word in "]}":
            path.pop()
        elif word == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        else:
            if path and (path[-1] is None or isinstance(path[-1], int)):
                path[-1] = json.loads(word) if path[-1] is None else path[-1]
                yield tuple(path), line + 1
            if word in "[{":
                path.append(None if word == "{" else 0)
