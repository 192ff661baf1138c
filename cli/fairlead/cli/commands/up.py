"""fairlead up."""

import signal
import subprocess
import sys
import time
from types import FrameType

from fairlead.base.bell import is_heard
from fairlead.base.errors import RefusedError, UsageError
from fairlead.cli.access import Access, open_instance, own_paths
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.commands.events import Stream
from fairlead.cli.output import counted
from fairlead.cli.quick import asker
from fairlead.cli.waiting import follow
from fairlead.desk.desk import Desk
from fairlead.queue.rights import master
from fairlead.queue.sqlite.overview import status

#: A service that ended is started again after this long.
RESTART = 1.0
#: How long services get to stop.
PATIENCE = 15.0
#: Between two looks at the services.
LOOK_AGAIN = 0.5
#: The watchdog first, so that old locks are free before the first decision.
SERVICES = ("watchdog", "daemon")
#: Services that end like this have said why, and would do so again.
_REFUSALS = (RefusedError.exit_code, UsageError.exit_code)


def make_parser() -> Parser:
    """What it takes."""
    return parser(
        "up",
        "Run daemon and watchdog in the foreground and show what happens, with times in UTC. Ctrl-C stops them; agents"
        " that run go on, and the next `up` finds them again. HUP makes both read the settings again.",
        ["fairlead up", "FAIRLEAD_HOME=/tmp/try fairlead up"],
        json=False,
    )


def main(words: list[str]) -> int:
    """Run both services and show what happens until interrupted."""
    make_parser().parse_args(words)
    open_instance().close()
    access = Access(own_paths())
    if running := [name for name in SERVICES if is_heard(access.paths.bells, name)]:
        names = " and ".join(f"the {name}" for name in running)
        verb = "runs" if len(running) == 1 else "run"
        raise RefusedError(f"{names} {verb} already for this instance; `fairlead events -f` shows what happens.")
    up = Up(access)
    try:
        return up.run()
    finally:
        up.stop()


class Up:
    """Two services, kept running, and their events on the screen."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._desk = Desk(access, master(asker()))
        self._events = Stream(self._desk, access.store.last_event())
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        self._restart_at: dict[str, float] = {}
        self._asked_to_stop = False
        self._code = 0

    def run(self) -> int:
        """Start both, then follow the events until asked to stop, or until a service refuses to work."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        self._greet()
        follow(self._desk, "up", self._look, LOOK_AGAIN)
        self._say_goodbye()
        return self._code

    def _look(self) -> bool:
        if not self._asked_to_stop:  # a terminal interrupts the services, too: nothing to say about that
            self._keep_running()
        self._events.print_new()
        return not self._asked_to_stop

    def _greet(self) -> None:
        paths = self._access.paths
        print(f"fairlead runs at {paths.home}")
        print(f"drop task files into {paths.spool}, or use `fairlead submit`")
        print(f"the log is {paths.log_file}; Ctrl-C stops", flush=True)
        if found := self._left():
            print(f"it goes on with {found}", flush=True)

    def _left(self) -> str:
        """What runs and what waits, in words; nothing if nothing does."""
        data = status(self._access.store.db)
        counts = {"running": data["active"]["slots_used"], "waiting": data["pending"]["total"]}
        tasks = [f"{counted(count, 'task')} {what}" for what, count in counts.items() if count]
        return " and ".join(tasks)

    def _say_goodbye(self) -> None:
        left = self._left()
        goes_on = f"; {left}: agents go on, and the next `fairlead up` finds all of it again" if left else ""
        print(f"fairlead stops{goes_on}", flush=True)

    def _keep_running(self) -> None:
        for name in SERVICES:
            service = self._services.get(name)
            if service is None:
                self._services[name] = _start(name)
            elif service.poll() is not None:
                self._restart(name, service.returncode)

    def _restart(self, name: str, code: int) -> None:
        """Start it again after a moment; one that refuses to work ends it all."""
        if code in _REFUSALS:
            self._code, self._asked_to_stop = code, True
        elif name not in self._restart_at:
            print(f"the {name} {_end(code)}; it is started again", flush=True)
            self._restart_at[name] = time.monotonic() + RESTART
        elif time.monotonic() >= self._restart_at[name]:
            del self._restart_at[name]
            self._services[name] = _start(name)

    def stop(self) -> None:
        """Ask both to stop and wait for them; one that does not hear is killed, which harms nothing."""
        for service in self._services.values():
            service.terminate()
        for service in self._services.values():
            try:
                service.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                service.kill()

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._asked_to_stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        for service in self._services.values():
            service.send_signal(signal.SIGHUP)


def _start(name: str) -> subprocess.Popen[bytes]:
    # Its lines go to the log file; this terminal shows the events, and a service's last words.
    return subprocess.Popen([sys.executable, "-m", "fairlead.cli.main", name, "--quiet"], stdin=subprocess.DEVNULL)


def _end(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
