"""fairlead daemon."""

from fairlead.cli.arguments import Parser
from fairlead.cli.services import run_service, service_parser
from fairlead.daemon.process import Daemon


def make_parser() -> Parser:
    """What it takes."""
    return service_parser(
        "daemon", "Run the dispatcher: takes files in, decides who is next, starts agents. One per instance."
    )


def main(words: list[str]) -> int:
    """Run the dispatcher until it is asked to stop."""
    return run_service("daemon", make_parser().parse_args(words), Daemon)
