"""The watchdog as a process: one per instance, woken by supervisors; the poll is the safety net."""

from collections.abc import Callable, MutableMapping

from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.queue.service import RETRY, TIME_TO_START, Service
from fairlead.systemd.notify import Notifier
from fairlead.watchdog.watchdog import Watchdog

#: When nobody has rung for this long, it is time for what can wait.
QUIET = 0.02


class WatchdogProcess(Service):
    """The watchdog's loop."""

    def __init__(self, paths: Paths, environ: MutableMapping[str, str], log: Log) -> None:
        super().__init__(paths, environ, log, "watchdog", Notifier(environ))
        self.watchdog = Watchdog(self.instance)

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Work until asked to stop; agents go on."""
        self.waiter.listen_to_signals()
        self.log.info("watchdog_starts")
        self.manager.starting("looks at what happened meanwhile", TIME_TO_START)
        first = True
        while not self.waiter.asked_to_stop:
            went_well = self._pass()
            if first:
                self.tell_ready(ready)
                first = False
            self._hear(self.sleep(self._pause() if went_well else RETRY))
        self.manager.stopping()
        self.log.info("watchdog_stops")

    def _pass(self) -> bool:
        return self.one_pass(self.watchdog, self.instance.config.intervals.watch)

    def _pause(self) -> float:
        pause = self.next_look - self.instance.clock.boot()
        return min(pause, QUIET) if self.watchdog.has_more else pause

    def _hear(self, words: set[str]) -> None:
        self.watchdog.hear(words)
        self.hear_reload(words)
