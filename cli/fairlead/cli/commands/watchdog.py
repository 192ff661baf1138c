"""fairlead watchdog."""

from fairlead.cli.services import run_service
from fairlead.watchdog.process import WatchdogProcess


def main(words: list[str]) -> int:
    """Run the watchdog until it is asked to stop."""
    return run_service(
        words,
        "watchdog",
        "Run the watchdog: sees how runs end, frees their locks, archives, prunes. One per instance.",
        WatchdogProcess,
    )
