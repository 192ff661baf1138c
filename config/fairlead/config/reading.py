"""YAML for people who make mistakes: every value knows its line, and nothing clever is allowed.

The events of the parser are read one by one, not composed by PyYAML: deeply nested text overflows the
stack of its C composer, and only events tell where an alias or a tag was written.
"""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

from fairlead.base.files import opened
from fairlead.base.scalars import Loader, TooLargeError, plain_value
from fairlead.base.text import line_of_tag_directive
from fairlead.config.problems import Origin, Path, Problem, show_path, show_value

LIMIT = 256 << 10
#: The schema needs five levels.
DEEPEST = 16

Locate = Callable[[int], Origin]


class Node(NamedTuple):
    """A value with its origin; a mapping's value is a dict of nodes, a list's is a list of them."""

    value: Any
    origin: Origin


class Unreadable(Exception):  # noqa: N818 - it is no error to show but the way out of the parser
    """The file as a whole cannot be used."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_text(path: str) -> str:
    """The text of a configuration file; links are followed, as /etc is often managed with them."""
    try:
        data = _read(path)
        return data.decode()
    except OSError as error:
        raise Unreadable(Problem(Origin(path), "", f"it cannot be read: {error.strerror}")) from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Unreadable(Problem(Origin(path, line), "", "it is not UTF-8 text; save it as UTF-8")) from error


def parse(text: str, locate: Locate, problems: list[Problem]) -> Node:
    """The value of a YAML text; what is wrong inside is added to the problems, no text means null."""
    if line := line_of_tag_directive(text):
        raise Unreadable(Problem(locate(line), "", "%TAG is not allowed here; remove this line"))
    try:
        return _Builder(Loader(text), locate, problems).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"it is not valid YAML: {error.problem or error.context}"
        raise Unreadable(Problem(locate(mark.line + 1 if mark else 1), "", what)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, text.find(chr(error.character))) + 1
        raise Unreadable(Problem(locate(line), "", f"the character U+{error.character:04X} is not allowed")) from error
    except UnicodeEncodeError as error:  # an environment variable may hold any bytes
        raise Unreadable(Problem(locate(1), "", "it is not UTF-8 text")) from error


class _Builder:
    """Turns the parser's events into nodes."""

    def __init__(self, loader: Any, locate: Locate, problems: list[Problem]) -> None:  # noqa: ANN401 - C or Python
        self._loader = loader
        self._locate = locate
        self._problems = problems

    def document(self) -> Node:
        """The one document of the text."""
        self._loader.get_event()  # the stream's start
        if self._loader.check_event(yaml.StreamEndEvent):
            return Node(None, self._locate(1))
        self._loader.get_event()  # the document's start
        event = self._loader.get_event()
        node = Node(self._value(event, ()), self._origin(event))
        self._loader.get_event()  # the document's end
        if not self._loader.check_event(yaml.StreamEndEvent):
            self._refuse(
                self._loader.get_event(),
                (),
                "only one document is allowed in a file; remove what follows ---",
            )
        return node

    def _value(self, event: Any, path: Path) -> Any:  # noqa: ANN401 - whatever YAML can say
        if len(path) > DEEPEST:
            raise Unreadable(Problem(self._origin(event), "", f"it is nested more than {DEEPEST} levels deep"))
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, path, "aliases (*) are not allowed; write the value out")
            return None
        if event.anchor is not None:
            self._refuse(event, path, "anchors (&) are not allowed; remove it, or quote text that begins with &")
        if event.tag is not None:
            self._refuse(event, path, "tags (!) are not allowed; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        return self._entries(path) if isinstance(event, yaml.MappingStartEvent) else list(self._items(path))

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:  # noqa: ANN401 - see _value
        is_plain, _ = event.implicit
        if not is_plain:
            return event.value
        try:
            return plain_value(event.value)
        except TooLargeError:
            self._refuse(event, path, "this number does not fit 64 bits; write it in quotes if it is text")
            return None

    def _items(self, path: Path) -> Iterator[Node]:
        number = 0
        while not self._loader.check_event(yaml.SequenceEndEvent):
            event = self._loader.get_event()
            yield Node(self._value(event, (*path, f"[{number}]")), self._origin(event))
            number += 1
        self._loader.get_event()

    def _entries(self, path: Path) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            event = self._loader.get_event()
            key = self._key(event, path)
            node = Node(self._value(self._loader.get_event(), (*path, key)), self._origin(event))
            if key in entries:
                self._refuse(event, (*path, key), f"this key is already there, at {entries[key].origin}")
            entries.setdefault(key, node)
        self._loader.get_event()
        return entries

    def _key(self, event: Any, path: Path) -> str:  # noqa: ANN401 - see _value
        key = self._value(event, (*path, "?"))
        if isinstance(key, str):
            return key
        self._refuse(event, path, f"this key is {show_value(key)}, not text; write it in quotes")
        return show_value(key)

    def _refuse(self, event: yaml.Event, path: Path, what: str) -> None:
        self._problems.append(Problem(self._origin(event), show_path(path), what))

    def _origin(self, event: Any) -> Origin:  # noqa: ANN401 - the stubs think that an event may have no mark
        return self._locate(event.start_mark.line + 1)


def _read(path: str) -> bytes:
    # Without O_NONBLOCK a FIFO by that name would hold the daemon until somebody writes.
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable(Problem(Origin(path), "", "it is not a regular file"))
        with open(fd, "rb", closefd=False) as file:
            data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise Unreadable(Problem(Origin(path), "", f"it is larger than {LIMIT >> 10} KiB"))
    return data
