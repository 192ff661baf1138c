"""The `fairlead` command: finds the command's module, and turns errors into one sentence and an exit code.

Only what the asked-for command needs is imported: `fairlead status` must feel instant.
"""

import sys
from collections.abc import Callable
from importlib import import_module

from fairlead.base.errors import FairleadError
from fairlead.cli.commands import COMMANDS

EXIT_CODES = """exit codes:
  0  done
  1  something failed; for `wait`: a task did not complete; for `doctor`: something is wrong
  2  the request itself is wrong
  4  there is no such task
  5  refused in the present state; for `wait`: a file that waited in the spool was refused
  6  not reachable now, or not ended in time
  130  interrupted
`lock hold` exits as its command does."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        code = run(words)
        if sys.stdout is not None:  # none: it was closed before we came
            sys.stdout.flush()
    except FairleadError as error:
        return complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()  # the reader has had enough
        return 0
    except OSError as error:
        return complain_of_system(error)
    return code


def run(words: list[str]) -> int:
    """Find the command and run it."""
    name, *rest = words or ["--help"]
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name in ("-V", "--version", "version"):
        from importlib.metadata import version  # noqa: PLC0415 - only for this

        print(f"fairlead {version('fairlead')}")
        return 0
    if name not in COMMANDS:
        from fairlead.config.problems import did_you_mean  # noqa: PLC0415 - only a mistake should pay for it

        near = did_you_mean(name, COMMANDS) or ";"
        return complain(f"there is no command {name!r}{near} `fairlead --help` lists them.", 2)
    try:
        return load(name)(rest)
    except SystemExit as end:  # argparse's way to end after --help
        return int(end.code or 0)


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
            "`fairlead COMMAND --help` says more about one. FAIRLEAD_HOME names the instance; without it, it lives",
            "in ~/.local/state/fairlead. Times are UTC, for people and for programs.",
            "",
            EXIT_CODES,
        ]
    )


def complain(sentence: str, code: int) -> int:
    """Say what is wrong, on standard error."""
    from fairlead.base.text import visible  # noqa: PLC0415 - only a mistake should pay for it

    print(f"fairlead: {visible(sentence)}", file=sys.stderr)
    return code


def complain_of_system(error: OSError) -> int:
    """Say what the system refused: a file it names, or else our own output."""
    if error.filename is None:
        _forget_output()
    place = "" if error.filename is None else f"{error.filename}: "
    return complain(f"{place}{error.strerror or error}{_advice(error)}.", 1)


def _advice(error: OSError) -> str:
    """The next step of somebody whose instance cannot be where it was to be."""
    import errno  # noqa: PLC0415 - only trouble should pay for it

    from fairlead.cli.quick import OTHER_HOME, is_at_home  # noqa: PLC0415 - as above

    of_the_place = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EROFS)
    is_meant = error.errno in of_the_place and isinstance(error.filename, str) and is_at_home(error.filename)
    return f"; {OTHER_HOME}" if is_meant else ""


def _forget_output() -> None:
    from fairlead.cli.output import forget_output  # noqa: PLC0415 - only trouble should pay for it

    forget_output()


if __name__ == "__main__":
    sys.exit(main())
