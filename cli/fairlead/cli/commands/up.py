"""fairlead up."""

import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.commands.events import print_events
from fairlead.cli.waiting import listening
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.instance import Instance

#: A service that ended is started again after this long.
RESTART = 1.0
#: How long services get to stop.
PATIENCE = 15.0
#: Between two looks at the services.
LOOK_AGAIN = 0.5


def main(words: list[str]) -> int:
    """Run both services and show what happens until interrupted."""
    made = parser(
        "up",
        "Run daemon and watchdog in the foreground and show what happens. Ctrl-C stops them; agents that run go on,"
        " and the next `up` finds them again.",
        ["fairlead up", "FAIRLEAD_HOME=/tmp/try fairlead up"],
        json=False,
    )
    made.parse_args(words)
    paths = find_paths()
    load(paths, os.environ)
    up = Up(paths)
    up.prepare()
    try:
        up.run()
    finally:
        up.stop()
    return 0


class Up:
    """Two services, kept running, and their events on the screen."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self.restart_at: dict[str, float] = {}
        self.asked_to_stop = False

    def prepare(self) -> None:
        """Make the instance, so that both services find it."""
        Instance(self.paths, os.environ, _Silent()).close()

    def run(self) -> None:
        """Start both, then follow the events until asked to stop."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        access = Access(self.paths)
        after = access.store.last_event()
        self._greet()
        with listening(self.paths.bells, "up") as listener:
            while not self.asked_to_stop:
                self.keep_running()
                after = print_events(access, after, None, as_json=False)
                select.select([listener], [], [], LOOK_AGAIN)
                listener.take()
        print_events(access, after, None, as_json=False)
        self._goodbye(access)

    def _greet(self) -> None:
        print(f"fairlead runs at {self.paths.home}")
        print(f"drop task files into {self.paths.spool}")
        print(f"logs: {self.paths.log_file}; Ctrl-C stops", flush=True)

    def _goodbye(self, access: Access) -> None:
        active = access.store.count_active()
        if active:
            print(f"{active} agents go on; the next `fairlead up` finds them again", flush=True)

    def keep_running(self) -> None:
        """Start what does not run: the watchdog first, so that old locks are free before the first decision."""
        for name in ("watchdog", "daemon"):
            process = self.services.get(name)
            if process is not None and process.poll() is None:
                continue
            if process is not None and name not in self.restart_at:
                print(f"the {name} ended with {process.returncode}; it is started again", flush=True)
                self.restart_at[name] = time.monotonic() + RESTART
            if time.monotonic() >= self.restart_at.get(name, 0.0):
                self.restart_at.pop(name, None)
                self.services[name] = _start(name)

    def stop(self) -> None:
        """Ask both to stop and wait for them."""
        for process in self.services.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.services.values():
            process.wait(PATIENCE)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        for process in self.services.values():
            process.send_signal(signal.SIGHUP)


class _Silent:
    """A log for the moment in which the instance is made."""

    def info(self, event: str, **fields: object) -> None:
        """Say nothing."""

    warning = error = info


def _start(name: str) -> subprocess.Popen[bytes]:
    # Its lines go to the log file; this terminal shows the events.
    return subprocess.Popen([sys.executable, "-m", "fairlead.cli.main", name], stdin=subprocess.DEVNULL, stderr=None)
