"""The daemon as a process: one per instance, woken by rings, the spool and signals; the poll is the safety net."""

import signal
from collections.abc import Callable, MutableMapping
from contextlib import suppress

from fairlead.base.bell import ring_all
from fairlead.base.errors import FairleadError
from fairlead.base.logs import Log
from fairlead.conductor.launcher import ProcessLauncher, ServiceLauncher
from fairlead.conductor.porter import Porter
from fairlead.conductor.starter import starter_of
from fairlead.config.paths import Paths
from fairlead.daemon.deliveries import PORTER_PATIENCE, Deliveries
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.daemon.spool import Spool
from fairlead.queue.claims import MACHINE_TROUBLE, NOBODY_CAME
from fairlead.queue.passes import guarded
from fairlead.queue.service import RETRY, TIME_TO_START, Service
from fairlead.queue.task import Event
from fairlead.systemd.notify import Notifier

#: While somebody writes a file, it is looked at no more often than this, whatever the settings say.
SHORTEST_PAUSE = 0.05


class Daemon(Service):
    """The dispatcher's loop."""

    def __init__(self, paths: Paths, environ: MutableMapping[str, str], log: Log) -> None:
        super().__init__(paths, environ, log, "daemon", Notifier(environ))
        intervals = self.instance.config.intervals
        inotify = self.instance.config.spool.inotify
        spool = Spool(paths, self.instance.clock, settle=intervals.settle, inotify=inotify)
        conductor = environ.get("FAIRLEAD_CONDUCTOR")
        launcher = ServiceLauncher(conductor) if conductor else ProcessLauncher(paths.error_log, paths.bells)
        self.dispatcher = Dispatcher(self.instance, launcher, spool, self._deliveries())

    def _deliveries(self) -> Deliveries | None:
        """In the system's instance others' spools are reached by clerks alone."""
        instance = self.instance
        if not instance.paths.is_system:
            return None
        porter = Porter(instance.paths.porter, PORTER_PATIENCE)
        return Deliveries(instance.paths.spool, porter, instance.store, instance.clock, self.log)

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Work until asked to stop; agents go on."""
        self.waiter.listen_to_signals()
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the spawner's death wakes us
        # Nothing is dispatched before what was left half done is put right: on a full disk that may take a while.
        while not self._prepared() and not self.waiter.asked_to_stop:
            self._hear(self.waiter.wait(RETRY))
        self.tell_ready(ready)
        while not self.waiter.asked_to_stop:
            went_well = self._pass()
            self._hear(self.sleep(self._pause() if went_well else RETRY))
        self.manager.stopping()
        self.log.info("daemon_stops")

    def _prepared(self) -> bool:
        self.manager.starting("puts right what was left half done", TIME_TO_START)
        return guarded((self.prepare,), self.log)

    def prepare(self) -> None:
        """What comes before the first pass."""
        self.instance.apply_shares()
        self.dispatcher.reconcile()
        inotify = self.dispatcher.spool.inotify
        if self.dispatcher.deliveries is not None:
            self.waiter.watch(self.dispatcher.deliveries.fileno())
        if inotify is not None:
            self.waiter.watch(inotify.fileno())
        elif self.instance.config.spool.inotify:
            self.log.warning("no_inotify", poll=self.instance.config.intervals.poll)
        instance = self.instance
        starter = starter_of(instance.config, instance.paths, instance.environ)
        self.log.info("daemon_starts", slots=instance.config.slots.max, spool=instance.paths.spool, starter=starter)

    def _pass(self) -> bool:
        return self.one_pass(self.dispatcher, self.instance.config.intervals.poll)

    def _hear(self, words: set[str]) -> None:
        """What was said while waiting: a freed lock says nothing about the spool, all else may."""
        if self.dispatcher.spool.hear() or words != {"freed"}:
            self.dispatcher.look_around = True
        if NOBODY_CAME in words:
            self.dispatcher.leave_spawner()
        for trouble in (word for word in words if word.startswith(MACHINE_TROUBLE)):
            self.dispatcher.rest(trouble)
        self.hear_reload(words)

    def settings_refused(self, error: str) -> None:
        """Let those know who follow the events."""
        self._note("settings_refused", error=error)

    def settings_reloaded(self, changed: list[str]) -> None:
        """Hand them on with the next pass."""
        self.dispatcher.has_new_settings = True
        self._note("settings_reloaded", what=", ".join(changed) or "nothing has changed")

    def _note(self, event: str, **detail: str) -> None:
        """Tell who follows the events; the log has it in any case."""
        with suppress(FairleadError):
            self.instance.store.note(Event(at=self.instance.clock.wall_ms(), event=event, detail=detail))
            ring_all(self.instance.paths.bells, "noted", but="daemon")

    def _pause(self) -> float:
        """How long to sleep at most: until the next look, the settling of a file, the next due task or showing."""
        dispatcher, clock = self.dispatcher, self.instance.clock
        if dispatcher.waiting_names or dispatcher.has_more:
            return 0.0
        now = clock.boot()
        if dispatcher.settling:
            settled = now + max(self.instance.config.intervals.settle, SHORTEST_PAUSE)
            self.next_look = min(self.next_look, settled)
        pause = self.next_look - now
        if dispatcher.deliveries is not None:
            pause = min(pause, dispatcher.deliveries.next_at - now)
        if dispatcher.show_at is not None:
            pause = min(pause, dispatcher.show_at - now)
        if dispatcher.next_due is not None:
            pause = min(pause, (dispatcher.next_due - clock.wall_ms()) / 1000)
        return max(0.0, pause)

    def close(self) -> None:
        """Let go of everything; agents go on."""
        self.dispatcher.close()
        super().close()
