"""fairlead daemon."""

from fairlead.cli.services import run_service
from fairlead.daemon.process import Daemon


def main(words: list[str]) -> int:
    """Run the dispatcher until it is asked to stop."""
    return run_service(
        words,
        "daemon",
        "Run the dispatcher: takes files in, decides who is next, starts agents. One per instance.",
        Daemon,
    )
