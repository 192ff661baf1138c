"""What daemon and watchdog have in common as processes: one of a kind, woken by rings, looking around now and then."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from fairlead.base.errors import FairleadError
from fairlead.base.files import make_directory
from fairlead.base.logs import Log
from fairlead.base.service import Single, Waiter
from fairlead.config.paths import Paths
from fairlead.queue.instance import Instance
from fairlead.queue.passes import guarded
from fairlead.queue.sqlite.overview import in_words

#: After a pass that went wrong, the next one comes this soon.
RETRY = 1.0
#: Seconds between two tellings of how things are: they are for people.
TELL_EVERY = 1.0
#: What comes before the first pass may take this many seconds more, each time that it is tried.
TIME_TO_START = 300.0


class Worker(Protocol):
    """Does the work of a service, pass by pass."""

    #: The next pass is to look at everything, not only at what was rung about.
    look_around: bool

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does."""


class Manager(Protocol):
    """Whoever started the service and watches over it: systemd, or nobody."""

    #: Without a sign of progress for so many seconds the service is started anew; none if nobody counts.
    patience: float | None

    def starting(self, status: str, seconds: float) -> None:
        """It is not ready yet, and may need so many seconds more."""

    def ready(self) -> None:
        """It works, or works again after reading its settings."""

    def status(self, status: str) -> None:
        """How things are, in a few words."""

    def alive(self) -> None:
        """It has got on."""

    def reloading(self) -> None:
        """It reads its settings again."""

    def stopping(self) -> None:
        """It is on its way out."""

    def close(self) -> None:
        """Nothing more will be said."""


class Service:
    """A long-running process of one instance."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log, name: str, manager: Manager) -> None:
        self.log = log
        self.manager = manager
        #: It has told those who wait for it that it works.
        self._works = False
        #: When to tell again how things are.
        self._tell_at = 0.0
        #: What is wrong with the settings that were read last; while something is, older ones are in force.
        self._wrong_settings = ""
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
        went_well = guarded((self.waiter.keep_bell, *worker.steps()), self.log)
        self._show_progress(now)
        return went_well

    def tell_ready(self, ready: Callable[[], None]) -> None:
        """Tell whoever waits for it that the service works."""
        self._works = True
        ready()
        self.manager.ready()

    def sleep(self, seconds: float) -> set[str]:
        """Wait for a ring, but no longer than whoever counts our signs of progress; returns the words of all rings."""
        patience = self.manager.patience
        return self.waiter.wait(seconds if patience is None else min(seconds, patience / 2))

    def _show_progress(self, now: float) -> None:
        """Tell the manager that a pass was done, and now and then how things are."""
        self.manager.alive()
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            with suppress(FairleadError):  # a store that cannot be read just now: the steps have said so
                self.manager.status(f"{self._wrong_settings}{in_words(self.instance.store.db)}")

    def hear_reload(self, words: set[str]) -> None:
        """Read the settings again if that was asked for, by a signal or a ring."""
        if self.waiter.asked_to_reload or "reload" in words:
            self.waiter.asked_to_reload = False
            if self._works:
                self.manager.reloading()
            self._reload()
            self._tell_at = 0.0
            if self._works:
                self.manager.ready()

    def _reload(self) -> None:
        try:
            changed = self.instance.reload()
        except FairleadError as error:
            self.log.error("settings_refused", error=str(error))
            self._wrong_settings = "the settings are wrong, older ones are in force; "
            self.settings_refused(str(error))
            return
        self._wrong_settings = ""
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
        self.manager.close()
