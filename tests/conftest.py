"""What all tests need."""

import signal


def pytest_configure() -> None:
    """Let what is started hear Ctrl-C: a shell keeps it from whatever it runs in the background, these tests maybe."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
