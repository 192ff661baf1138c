"""Commands as other users: everything is loaded first, since they may not read the interpreter's own files."""

import os
import sys
from importlib import import_module

from tests.support.programs import main

from fairlead.base.logs import open_log
from fairlead.cli.commands import COMMANDS
from fairlead.cli.main import main as fairlead
from fairlead.config.paths import find_paths
from fairlead.web.process import ApiProcess

#: What Python loads only when it meets it.
LATE = (
    "_strptime",
    "ctypes",
    "difflib",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    "fairlead.cli.remote",
    "psutil",
)


def command(uid: str, *words: str) -> None:
    """Run a command as a user."""
    for module, _ in COMMANDS.values():
        import_module(f"fairlead.cli.commands.{module}")
    for late in LATE:
        import_module(late)
    number = int(uid)
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)
    sys.exit(fairlead(list(words)))


def impatient(silence: str) -> None:
    """Answer at the socket, and hang up on the silent soon."""
    paths = find_paths()
    os.makedirs(paths.logs, exist_ok=True)
    service = ApiProcess(paths, os.environ, open_log(paths.log_file, "api"), float(silence))
    try:
        service.run()
    finally:
        service.close()


if __name__ == "__main__":
    main(globals())
