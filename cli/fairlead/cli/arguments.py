"""Arguments that the commands share."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fairlead.base.errors import UsageError

_EXAMPLES = "examples:\n"
_WIDE = 80


class _Help(argparse.HelpFormatter):
    """Sentences are wrapped, examples stay as they are."""

    def __init__(self, prog: str) -> None:
        # Left to itself it would import shutil, with all its compressors, only to ask for this width.
        super().__init__(prog, width=_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Wrong arguments are an error like any other, so that they are said in the same way."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where to read on."""
        raise UsageError(f"{message}{self._meant(message)} (`{self.prog} --help` says more)")

    def _meant(self, message: str) -> str:
        """The option that is like the first unknown one; nothing for other mistakes."""
        from fairlead.config.problems import did_you_mean  # noqa: PLC0415 - only a mistake should pay for it

        _, _, unknown = message.partition("unrecognized arguments: ")
        word = unknown.split(" ")[0].partition("=")[0]
        return did_you_mean(word, self._option_string_actions) if word.startswith("--") else ""


def parser(name: str, summary: str, examples: Sequence[str], *, json: bool = True) -> Parser:
    """A command's parser: summary, options, examples."""
    lines = "\n".join(f"  {example}" for example in examples)
    made = Parser(
        prog=f"fairlead {name}",
        description=summary,
        epilog=f"{_EXAMPLES}{lines}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    if json:
        made.add_argument("--json", action="store_true", help="print JSON, for programs")
    return made


def _columns() -> int:
    """How wide the terminal is; COLUMNS says it first, as everywhere."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(1).columns or _WIDE
    except OSError:  # standard output is closed, or no terminal
        return _WIDE


def is_terminal() -> bool:
    """Whether a person reads along."""
    return sys.stdout is not None and sys.stdout.isatty()
