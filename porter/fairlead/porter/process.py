"""The porter as a process: the one of the system's instance that is root."""

import os
import pwd
import resource
import signal
import socket
from collections.abc import Callable, MutableMapping
from types import FrameType

from fairlead.base.clock import SystemClock
from fairlead.base.errors import FairleadError, RefusedError
from fairlead.base.files import make_directory, remove
from fairlead.base.logs import Log
from fairlead.base.principals import forget_groups
from fairlead.config.loading import load
from fairlead.config.paths import SERVICE_USER, Paths
from fairlead.porter.desk import Desk
from fairlead.porter.spools import Spools
from fairlead.systemd.notify import Notifier
from fairlead.systemd.sockets import inherited
from fairlead.systemd.transient import TransientUnits

#: Users join and leave groups: the system is asked anew so often, in seconds.
REFRESH = 60.0
#: Environments of units lie here until systemd has read them; root's alone.
FOLDER = "/run/fairlead-porter"
_LONGEST_SLEEP = 5.0


class PorterProcess:
    """The porter's loop."""

    def __init__(self, paths: Paths, environ: MutableMapping[str, str], log: Log) -> None:
        if os.geteuid() != 0 or not paths.is_system:
            raise RefusedError("the porter is root's, and the system's instance's: systemd starts it.")
        self.paths = paths
        self.environ = environ
        self.log = log
        self.clock = SystemClock()
        self.notifier = Notifier(environ)
        _allow_many_descriptors()
        account = pwd.getpwnam(SERVICE_USER)
        self.spools = Spools(paths.spool, load(paths, environ).config, account.pw_gid, log)
        make_directory(FOLDER)
        units = TransientUnits("system", FOLDER)
        self.desk = Desk(_door(paths.porter, account.pw_uid, environ), self.spools, units, account.pw_uid, log)
        self.asked_to_stop = self.asked_to_reload = False
        self._refresh_at = 0.0

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until asked to stop; agents go on."""
        self._listen_to_signals()
        self._refresh()
        ready()
        self.notifier.ready()
        self.log.info("porter_starts", socket=self.paths.porter)
        patience = self.notifier.patience or 2 * _LONGEST_SLEEP
        while not self.asked_to_stop:
            self.desk.serve(min(patience / 2, _LONGEST_SLEEP))
            self.notifier.alive()
            self._keep_fresh()
        self.notifier.stopping()
        self.log.info("porter_stops")

    def _listen_to_signals(self) -> None:
        wakeup, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.desk.watch(wakeup)
        self._wakeup = wakeup
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, self._on_reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_reload = True

    def _keep_fresh(self) -> None:
        self._drain_wakeup()
        if self.asked_to_reload:
            self.asked_to_reload = False
            self.notifier.reloading()
            self._reload()
            self.notifier.ready()
        if self.clock.boot() >= self._refresh_at:
            self._refresh()

    def _drain_wakeup(self) -> None:
        try:
            os.read(self._wakeup, 4096)
        except BlockingIOError:
            return

    def _reload(self) -> None:
        try:
            self.spools.config = load(self.paths, self.environ).config
        except FairleadError as error:
            self.log.error("settings_refused", error=str(error))
            return
        self.log.info("settings_reloaded")
        self._refresh()

    def _refresh(self) -> None:
        """Whoever may use the queue by now has a spool."""
        forget_groups()
        made = self.spools.make()
        self._refresh_at = self.clock.boot() + REFRESH
        self.notifier.status(f"{len(made)} users have a spool, {len(self.desk.clerks)} clerks are out")

    def close(self) -> None:
        """Close the desk."""
        self.desk.close()
        self.notifier.close()


def _allow_many_descriptors() -> None:
    """Every supervisor has a line to us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _door(path: str, uid: int, environ: MutableMapping[str, str]) -> socket.socket:
    """The socket that systemd has opened, or one of our own, in a directory of root's; for our services alone."""
    if given := inherited(environ):
        return given[0]
    remove(path)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        door.bind(path)
    finally:
        os.umask(before)
    os.chown(path, uid, -1)
    door.listen(64)
    return door
