"""What can be wrong with a configuration, said so that a person can mend it at once."""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead.base.errors import UsageError
from fairlead.base.text import near_miss, one_line

#: The way to a value: ("slots", "max").
Path = tuple[str, ...]


class Origin(NamedTuple):
    """Where a value was written: a file and its line, or an environment variable."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


#: The origin of whatever nobody has set.
DEFAULT = Origin("default")


class Problem(NamedTuple):
    """One thing that is wrong; `key` is empty when it concerns a file as a whole."""

    origin: Origin
    key: str
    what: str

    def __str__(self) -> str:
        return one_line(": ".join(part for part in (str(self.origin), self.key, self.what) if part), 1000)


class ConfigError(UsageError):
    """The configuration cannot be used."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems]
        heading = [f"The configuration has {len(lines)} problems:"] if len(lines) > 1 else []
        super().__init__("\n  ".join(heading + lines))


def show_path(path: Path) -> str:
    """The path as people write it: agents."my.agent".command[0]; names that hold a dot are quoted."""
    return ".".join(f'"{part}"' if "." in part else part for part in path).replace(".[", "[")


def show_value(value: object) -> str:
    """A wrong value in an error message: short, and safe for a terminal."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return one_line(repr(value), 60)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message: the near miss, or nothing."""
    near = near_miss(word, known)
    return f"; did you mean {near!r}?" if near else ""
