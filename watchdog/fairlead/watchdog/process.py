"""The watchdog as a process: one per instance, woken by supervisors; the poll is the safety net."""

from collections.abc import Callable, Mapping

from fairlead.base.errors import FairleadError
from fairlead.base.files import make_directory
from fairlead.base.logs import Log
from fairlead.base.service import Single, Waiter
from fairlead.config.paths import Paths
from fairlead.queue.instance import Instance
from fairlead.queue.passes import guarded
from fairlead.watchdog.watchdog import Watchdog

#: After a pass that went wrong, the next one comes this soon.
RETRY = 1.0
#: When nobody has rung for this long, it is time for what can wait.
QUIET = 0.02


class WatchdogProcess:
    """The watchdog's loop."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log) -> None:
        self.log = log
        # First: while we wait for our turn, the store may be replaced by a rebuilt one.
        make_directory(paths.run)
        self.single = Single(paths.watchdog_lock, "the watchdog")
        self.single.take()
        self.instance = Instance(paths, environ, log)
        self.waiter = Waiter(paths.bells, "watchdog")
        self.watchdog = Watchdog(self.instance)
        self._next_look = 0.0

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Work until asked to stop; agents go on."""
        self.waiter.listen_to_signals()
        self.log.info("watchdog_starts")
        first = True
        while not self.waiter.asked_to_stop:
            went_well = self._pass()
            if first:
                ready()
                first = False
            self._hear(self.waiter.wait(self._pause() if went_well else RETRY))
        self.log.info("watchdog_stops")

    def _pass(self) -> bool:
        """One pass; a look around is due at least as often as the settings say, however much is rung."""
        now = self.instance.clock.boot()
        if now >= self._next_look:
            self.watchdog.look_around = True
        if self.watchdog.look_around:
            self._next_look = now + self.instance.config.intervals.watch
        return guarded((self.waiter.keep_bell, *self.watchdog.steps()), self.log)

    def _pause(self) -> float:
        pause = self._next_look - self.instance.clock.boot()
        return min(pause, QUIET) if self.watchdog.has_more else pause

    def _hear(self, words: set[str]) -> None:
        self.watchdog.hear(words)
        if self.waiter.asked_to_reload or "reload" in words:
            self.waiter.asked_to_reload = False
            self._reload()

    def _reload(self) -> None:
        try:
            changed = self.instance.reload()
        except FairleadError as error:
            self.log.error("settings_refused", error=str(error))
            return
        self.log.info("settings_reloaded", changed=changed)

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.waiter.close()
        self.instance.close()
        self.single.release()
