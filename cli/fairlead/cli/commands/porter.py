"""fairlead porter."""

import os

from fairlead.base.logs import open_log
from fairlead.cli.arguments import Parser, parser
from fairlead.config.paths import find_paths


def make_parser() -> Parser:
    """What it takes."""
    return parser(
        "porter",
        "Do what only root can for the system's instance: make spools, lend out clerks that have become their users,"
        " start and end the units of agents. systemd starts it. TERM stops it, agents go on; HUP reads the settings"
        " again.",
        ["fairlead porter"],
        json=False,
    )


def main(words: list[str]) -> int:
    """Serve until asked to stop."""
    from fairlead.porter.process import PorterProcess  # noqa: PLC0415 - the help needs none of it

    make_parser().parse_args(words)
    # The files of the log are in a directory of the service account's: root writes nothing there.
    porter = PorterProcess(find_paths(), os.environ, open_log(os.devnull, "porter", terminal=True))
    try:
        porter.run()
    finally:
        porter.close()
    return 0
