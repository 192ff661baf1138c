"""Arguments and access that the commands share."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fairlead.base.errors import UnavailableError, UsageError
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.sqlite.connection import Connection


class NoInstanceError(UnavailableError):
    """There is no instance yet."""


class _Parser(argparse.ArgumentParser):
    """Wrong arguments are an error like any other, so that they are said in the same way."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` says more)")


def parser(name: str, summary: str, examples: Sequence[str], *, json: bool = True) -> argparse.ArgumentParser:
    """A command's parser: summary, options, examples."""
    lines = "\n".join(f"  {example}" for example in examples)
    made = _Parser(
        prog=f"fairlead {name}",
        description=summary,
        epilog=f"examples:\n{lines}" if lines else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if json:
        made.add_argument("--json", action="store_true", help="print JSON, for programs")
    return made


def open_connection(paths: Paths | None = None) -> Connection:
    """The store, for reading; refuses to make a new one."""
    where = paths or find_paths()
    if not os.path.exists(where.store):
        raise NoInstanceError(
            f"there is no queue at {where.home} yet: `fairlead up` starts one there; FAIRLEAD_HOME names another."
        )
    return Connection(where.store, read_only=True)


def is_terminal() -> bool:
    """Whether a person reads along."""
    return sys.stdout.isatty()
