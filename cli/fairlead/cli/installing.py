"""What `install` and `uninstall` share: for whom, and which files the command itself brings."""

import argparse
import os

from fairlead.base.errors import UsageError
from fairlead.cli.arguments import Parser
from fairlead.cli.manual import pages
from fairlead.systemd.manifest import File
from fairlead.systemd.places import Places, Scope


def add_scope(made: Parser) -> None:
    """For whom, and where."""
    made.add_argument("--system", action="store_true", help="for everybody on this host; what root gets by default")
    made.add_argument("--user", action="store_true", help="for you alone; what others get by default")
    made.add_argument(
        "--prefix", metavar="DIR", default="/usr/local", help="where the system's files go; for packagers"
    )


def places_for(args: argparse.Namespace) -> Places:
    """Where things go."""
    if args.system and args.user:
        raise UsageError("--system and --user exclude each other.")
    if not os.path.isabs(args.prefix):
        raise UsageError("--prefix must be an absolute path.")
    is_system = args.system or (not args.user and os.geteuid() == 0)
    return Places(Scope.SYSTEM if is_system else Scope.USER, os.environ, os.path.normpath(args.prefix))


def extras(places: Places) -> list[File]:
    """Completion and man pages."""
    from fairlead.cli.commands.completion import script  # noqa: PLC0415 - that one knows all commands, us among them

    files = [File(path=path, content=script(shell).encode()) for shell, path in places.completions.items()]
    for name, text in pages().items():
        section = name.rpartition(".")[2]
        files.append(File(path=f"{places.man}/man{section}/{name}", content=text.encode()))
    return files
