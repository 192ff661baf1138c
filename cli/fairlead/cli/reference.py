"""Renders docs/commands.md from the commands' parsers: `python -m fairlead.cli.reference`."""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module

from fairlead.cli.arguments import Parser
from fairlead.cli.commands import COMMANDS
from fairlead.cli.main import EXIT_CODES

_INTRO = """\
# Commands

`fairlead COMMAND --help` prints what this page says about one command. `FAIRLEAD_HOME` names the instance; without it,
it lives in `~/.local/state/fairlead`.

- Wherever a task's id is asked for, enough of its beginning or of its tail will do.
- Every command that reads has `--json`; what it prints then is for programs and stays as it is. Without it, output is
  for people: colours on a terminal (unless `NO_COLOR` is set), plain lines in a pipe, control characters spelled out.
- Times are UTC, for people and for programs, as in ids and in the log. A time that you write without a zone is read in
  this host's zone, and a note says so.
- Errors are one sentence on standard error that says what to do next; notes are there, too.
"""


def reference() -> str:
    """The whole page."""
    parts = [_INTRO, "| command | what it does |\n|---|---|"]
    parts += [f"| [`{name}`](#fairlead-{name}) | {summary} |" for name, (_, summary) in COMMANDS.items()]
    parts += ["", f"## Exit codes\n\n```text\n{EXIT_CODES.partition(chr(10))[2]}\n```\n"]
    parts += [section for name in COMMANDS for made in parsers(name) for section in _section(made)]
    return "\n".join(parts).rstrip() + "\n"


def parsers(name: str) -> tuple[Parser, ...]:
    """A command's parser, and those of its ways."""
    module = import_module(f"fairlead.cli.commands.{COMMANDS[name][0]}")
    ways: tuple[Parser, ...] = module.make_parsers() if hasattr(module, "make_parsers") else ()
    return (module.make_parser(), *ways)


def actions(made: Parser) -> list[argparse.Action]:
    """What a parser takes, but for its help."""
    known = made._actions  # noqa: SLF001 - argparse has no other way to look into a parser
    return [action for action in known if action.dest != "help"]


def _section(made: Parser) -> Iterator[str]:
    yield f"## {made.prog}\n\n{made.description}\n"
    taken = actions(made)
    if taken:
        yield "| argument | meaning |\n|---|---|"
        yield from (f"| {_name(action)} | {_meaning(action)} |" for action in taken)
        yield ""
    examples = re.sub(r"^  ", "", (made.epilog or "").partition("\n")[2], flags=re.MULTILINE)
    yield f"```sh\n{examples}\n```\n"


def _name(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else value_of(action).replace("|", "\\|")
    names = [f"`{' '.join(filter(None, (name, value)))}`" for name in action.option_strings]
    return ", ".join(names) or f"`{value}`"


def value_of(action: argparse.Action) -> str:
    """What stands for an argument's value."""
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(action.choices or [action.dest.upper()])


def _meaning(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
