"""The watchdog as a process: one per instance, woken by supervisors; the poll is the safety net."""

from collections.abc import Callable, Mapping

from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.queue.service import RETRY, Service
from fairlead.watchdog.watchdog import Watchdog

#: When nobody has rung for this long, it is time for what can wait.
QUIET = 0.02


class WatchdogProcess(Service):
    """The watchdog's loop."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log) -> None:
        super().__init__(paths, environ, log, "watchdog")
        self.watchdog = Watchdog(self.instance)

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
        return self.one_pass(self.watchdog, self.instance.config.intervals.watch)

    def _pause(self) -> float:
        pause = self.next_look - self.instance.clock.boot()
        return min(pause, QUIET) if self.watchdog.has_more else pause

    def _hear(self, words: set[str]) -> None:
        self.watchdog.hear(words)
        self.hear_reload(words)
