"""fairlead watchdog."""

from fairlead.cli.arguments import Parser
from fairlead.cli.services import run_service, service_parser
from fairlead.watchdog.process import WatchdogProcess


def make_parser() -> Parser:
    """What it takes."""
    return service_parser(
        "watchdog", "Run the watchdog: sees how runs end, frees their locks, archives, prunes. One per instance."
    )


def main(words: list[str]) -> int:
    """Run the watchdog until it is asked to stop."""
    return run_service("watchdog", make_parser().parse_args(words), WatchdogProcess)
