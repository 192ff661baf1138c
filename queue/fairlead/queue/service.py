"""What daemon and watchdog have in common as processes: one of a kind, woken by rings, looking around now and then."""

from collections.abc import Callable, Mapping
from typing import Protocol

from fairlead.base.errors import FairleadError
from fairlead.base.files import make_directory
from fairlead.base.logs import Log
from fairlead.base.service import Single, Waiter
from fairlead.config.paths import Paths
from fairlead.queue.instance import Instance
from fairlead.queue.passes import guarded

#: After a pass that went wrong, the next one comes this soon.
RETRY = 1.0


class Worker(Protocol):
    """Does the work of a service, pass by pass."""

    #: The next pass is to look at everything, not only at what was rung about.
    look_around: bool

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does."""


class Service:
    """A long-running process of one instance."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log, name: str) -> None:
        self.log = log
        # First: while we wait for our turn, the store may be replaced by a rebuilt one.
        make_directory(paths.run)
        self.single = Single(paths.single_lock(name), f"the {name}")
        self.single.take()
        self.instance = Instance(paths, environ, log)
        self.waiter = Waiter(paths.bells, name)
        #: When the next look around is due, by the clock that does not jump.
        self.next_look = 0.0

    def one_pass(self, worker: Worker, interval: float) -> bool:
        """One pass; it looks around at least every so many seconds, however much is rung about single things."""
        now = self.instance.clock.boot()
        if now >= self.next_look:
            worker.look_around = True
        if worker.look_around:
            self.next_look = now + interval
        return guarded((self.waiter.keep_bell, *worker.steps()), self.log)

    def hear_reload(self, words: set[str]) -> None:
        """Read the settings again if that was asked for, by a signal or a ring."""
        if self.waiter.asked_to_reload or "reload" in words:
            self.waiter.asked_to_reload = False
            self._reload()

    def _reload(self) -> None:
        try:
            changed = self.instance.reload()
        except FairleadError as error:
            self.log.error("settings_refused", error=str(error))
            self.settings_refused(str(error))
            return
        self.log.info("settings_reloaded", changed=changed)
        self.settings_reloaded(changed)

    def settings_refused(self, error: str) -> None:
        """What else follows from wrong settings: the old ones stay in force."""

    def settings_reloaded(self, changed: list[str]) -> None:
        """What else follows from new settings."""

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.waiter.close()
        self.instance.close()
        self.single.release()
