"""The `fairlead` command: finds the command's module, and turns errors into one sentence and an exit code.

Only what the asked-for command needs is imported: `fairlead status` must feel instant.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module

from fairlead.base.errors import FairleadError
from fairlead.cli.commands import COMMANDS

EXIT_CODES = """exit codes:
  0  done
  1  something failed; for `wait`: a task did not complete
  2  the request itself is wrong
  4  there is no such task
  5  refused in the present state
  6  not reachable now; try again later
  130  interrupted"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        return run(words)
    except FairleadError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has had enough; Python must not complain about that at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(words: list[str]) -> int:
    """Find the command and run it."""
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name in ("-V", "--version", "version"):
        from importlib.metadata import version  # noqa: PLC0415 - only for this

        print(f"fairlead {version('fairlead')}")
        return 0
    if name not in COMMANDS:
        from fairlead.config.problems import did_you_mean  # noqa: PLC0415 - only a mistake should pay for it

        return complain(f"there is no command {name!r}{did_you_mean(name, COMMANDS)} `fairlead --help` lists them.", 2)
    return load(name)(words[1:])


def load(name: str) -> Callable[[list[str]], int]:
    """The entry point of a command."""
    module = import_module(f"fairlead.cli.commands.{COMMANDS[name][0]}")
    entry: Callable[[list[str]], int] = module.main
    return entry


def overview() -> str:
    """What `fairlead --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: fairlead COMMAND [OPTIONS]",
            "",
            "A queue for hosts that several people share: one task per user at a time, fair share, nothing lost.",
            "",
            "commands:",
            *lines,
            "",
            "`fairlead COMMAND --help` says more about one. FAIRLEAD_HOME names the instance; without it, it is the one",
            "in ~/.local/state/fairlead.",
            "",
            EXIT_CODES,
        ]
    )


def complain(sentence: str, code: int) -> int:
    """Say what is wrong, on standard error."""
    from fairlead.base.text import visible  # noqa: PLC0415 - only a mistake should pay for it

    print(f"fairlead: {visible(sentence)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
