"""The settings of one instance, from all their layers.

Later wins: what is built in, the instance's config.yaml, config.d/ in the order of their names,
environment variables like FAIRLEAD__SLOTS__MAX.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from fairlead.base.files import names_in
from fairlead.config.checks import check_whole
from fairlead.config.layers import Entries, LayerCheck, overlay
from fairlead.config.paths import Paths
from fairlead.config.problems import DEFAULT, ConfigError, Origin, Path, Problem, show_value
from fairlead.config.reading import Locate, Node, Unreadable, parse, read_text
from fairlead.config.schema import Config
from fairlead.config.shape import fields_of, shape_of

SHIPPED = os.path.join(os.path.dirname(__file__), "shipped")
PREFIX = "FAIRLEAD__"
#: Of the files in config.d.
ENDINGS = (".yaml", ".yml")


class Settings(NamedTuple):
    """The effective configuration, the origin of each value that was set, and the files that were read."""

    config: Config
    origins: dict[Path, Origin]
    files: tuple[str, ...]


def load(paths: Paths, environ: Mapping[str, str]) -> Settings:
    """Read every layer; raises ConfigError with all that is wrong."""
    return _Loading(paths, environ).settings()


class _Loading:
    """One reading of all layers; problems are gathered on the way, so that one run shows them all."""

    def __init__(self, paths: Paths, environ: Mapping[str, str]) -> None:
        self._paths = paths
        self._environ = environ
        self._problems: list[Problem] = []

    def settings(self) -> Settings:
        """All layers on top of each other."""
        files = tuple(self._files())
        tree = self._merged(files)
        if self._problems:
            raise ConfigError(self._problems)
        return Settings(msgspec.convert(_plain(tree), Config), dict(_origins(tree)), files)

    def _merged(self, files: tuple[str, ...]) -> Entries:
        nodes = [self._file(path) for path in files] + [self._override(name) for name in self._override_names()]
        all_were_read = not self._problems
        check = LayerCheck(self._problems)
        tree = shipped = check.section(self._file(os.path.join(SHIPPED, "default.yaml"), DEFAULT), Config)
        for node in nodes:
            tree = overlay(tree, check.section(node, Config), shipped)
        if all_were_read:  # or else whatever a broken file defines would be reported as missing
            check_whole(tree, self._problems)
        return tree

    def _files(self) -> Iterator[str]:
        if self._environ.get("FAIRLEAD_CONFIG") or _is_there(self._paths.config_file):
            yield self._paths.config_file
        folder = self._paths.config_folder
        try:
            names = names_in(folder)
        except OSError as error:
            self._problems.append(Problem(Origin(folder), "", f"it cannot be read: {error.strerror}"))
            return
        yield from (os.path.join(folder, name) for name in names if name.endswith(ENDINGS) and name[0] != ".")

    def _file(self, path: str, origin: Origin | None = None) -> Node:
        try:
            node = self._parse(read_text(path), lambda line: origin or Origin(path, line))
        except Unreadable as error:
            self._problems.append(error.problem)
            return Node({}, Origin(path))
        return self._mapping(node)

    def _mapping(self, node: Node) -> Node:
        if isinstance(node.value, dict):
            return node
        if node.value is not None:  # an empty file, or one of comments, is fine
            what = f"expected a mapping like 'slots: {{max: 4}}'; got {show_value(node.value)}"
            self._problems.append(Problem(node.origin, "", what))
        return node._replace(value={})

    def _override_names(self) -> list[str]:
        return sorted(name for name in self._environ if name.startswith(PREFIX))

    def _override(self, name: str) -> Node:
        origin = Origin(name)
        try:
            node = self._parse(self._environ[name], lambda _: origin)
        except Unreadable as error:
            self._problems.append(error.problem)
            return Node({}, origin)
        for key in reversed(_keys(name)):
            node = Node({key: node}, origin)
        return node

    def _parse(self, text: str, locate: Locate) -> Node:
        return parse(text, locate, self._problems)


def _keys(name: str) -> list[str]:
    """The key path that a variable means: the schema's keys in any case, people's names as they stand."""
    shape, keys = shape_of(Config), []
    for part in name.removeprefix(PREFIX).split("__"):
        if shape.section:
            keys.append(part.lower())
            known = fields_of(shape.section).get(keys[-1])
            shape = known.shape if known else shape_of(str)
        else:
            keys.append(part)
            shape = shape.mapping[1] if shape.mapping else shape_of(str)
    return keys


def _is_there(path: str) -> bool:
    """Whether the file has to be read: a dangling link or a forbidden directory is no missing file."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # reading it will say what is wrong
    return True


def _plain(tree: Entries) -> dict[str, Any]:
    return {name: _plain(node.value) if isinstance(node.value, dict) else node.value for name, node in tree.items()}


def _origins(tree: Entries, path: Path = ()) -> Iterator[tuple[Path, Origin]]:
    for name, node in tree.items():
        if isinstance(node.value, dict):
            yield from _origins(node.value, (*path, name))
        else:
            yield (*path, name), node.origin
