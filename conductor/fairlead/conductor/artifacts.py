"""Artifacts: the files below a run's working directory that the task's patterns name.

An agent made that tree, so nothing in it may lead out of it, or keep the search busy for ever.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from fnmatch import translate

#: Directory entries that are looked at, and seconds that this may take.
MOST_LOOKS = 200_000
MOST_SECONDS = 5.0

_MAGIC = re.compile(r"[*?\[]")


def find_artifacts(root: str, patterns: Sequence[str], most: int) -> list[str]:
    """The paths below root that match, at most so many; what the limits leave no time for is left out."""
    if not patterns:
        return []
    search = _Search(root)
    found: set[str] = set()
    for pattern in patterns:
        for path in search.matches(pattern):
            found.add(path)
            if len(found) >= most:
                return _readable(found)
    return _readable(found)


def _readable(paths: set[str]) -> list[str]:
    """Names are bytes; those that are no text are spelled out, so that they can be written as JSON."""
    return sorted(os.fsencode(path).decode("utf-8", "backslashreplace") for path in paths)


class _Search:
    """One search over all patterns of a task, with one allowance for all of them."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.looks = MOST_LOOKS
        self.deadline = time.monotonic() + MOST_SECONDS

    def matches(self, pattern: str) -> Iterator[str]:
        """The files that one pattern names; `**` stands for any number of directories, links not followed."""
        if pattern.startswith("/") or pattern.endswith(("/", "/.")) or ".." in pattern.split("/"):
            return
        parts = tuple(part for part in pattern.split("/") if part not in {"", "."})
        seen: set[tuple[str, tuple[str, ...]]] = set()
        todo = [("", parts)]
        # A stack of our own: an agent can nest directories deeper than Python can call.
        while todo and parts and self._go_on():
            place = todo.pop()
            if place not in seen:
                seen.add(place)
                yield from self._look(*place, todo)

    def _look(self, folder: str, parts: tuple[str, ...], todo: list[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
        first, rest = parts[0], parts[1:]
        if first == "**":
            todo.append((folder, rest or ("*",)))
            todo += [(path, parts) for path in self._entries(folder, "*") if self._is_directory(path, links=False)]
            return
        for path in self._entries(folder, first):
            if rest and self._is_directory(path, links=True):
                todo.append((path, rest))
            elif not rest and self._is_file(path):
                yield path

    def _entries(self, folder: str, pattern: str) -> Iterator[str]:
        """The names in a folder that one part of a pattern means, as paths from the root."""
        if not _MAGIC.search(pattern):
            yield os.path.join(folder, pattern)
            return
        fits = re.compile(translate(pattern)).match
        yield from (os.path.join(folder, name) for name in self._names(folder) if fits(name))

    def _names(self, folder: str) -> Iterator[str]:
        try:
            with os.scandir(os.path.join(self.root, folder)) as entries:
                for entry in entries:
                    if not self._go_on():
                        return
                    yield entry.name
        except OSError:
            return  # it is gone, or may not be read: no artifacts there

    def _go_on(self) -> bool:
        self.looks -= 1
        return self.looks > 0 and time.monotonic() < self.deadline

    def _is_directory(self, path: str, *, links: bool) -> bool:
        full = os.path.join(self.root, path)
        if os.path.islink(full):
            return links and os.path.isdir(full) and self._is_inside(full)
        return os.path.isdir(full)

    def _is_file(self, path: str) -> bool:
        full = os.path.join(self.root, path)
        return os.path.isfile(full) and (not os.path.islink(full) or self._is_inside(full))

    def _is_inside(self, full: str) -> bool:
        return os.path.commonpath((self.root, os.path.realpath(full))) == self.root
