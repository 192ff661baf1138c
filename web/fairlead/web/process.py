"""The service that answers at the socket."""

import asyncio
import signal
from collections.abc import Callable, MutableMapping
from contextlib import suppress

from fairlead.base.bell import Listener
from fairlead.base.errors import FairleadError
from fairlead.base.files import make_directory
from fairlead.base.logs import Log
from fairlead.base.service import Single
from fairlead.config.paths import Paths
from fairlead.queue.sqlite import overview
from fairlead.systemd.notify import Notifier
from fairlead.web.answering import Answering
from fairlead.web.connections import SILENCE, Connections
from fairlead.web.sockets import BACKLOG, CallingPlace
from fairlead.web.workers import Workers

#: Rings that come within this time wake those who wait once.
GATHER = 0.02
#: The bell is looked after this often.
KEEP = 5.0
#: Requests that are worked on get so long to be answered when the service stops.
GOODBYE = 5.0


class ApiProcess:
    """The service's loop."""

    def __init__(self, paths: Paths, environ: MutableMapping[str, str], log: Log, silence: float = SILENCE) -> None:
        self.paths = paths
        self.log = log
        self.notifier = Notifier(environ)
        self.silence = silence
        for directory in (paths.run, paths.bells):
            make_directory(directory)
        self.single = Single(paths.single_lock("api"), "the api")
        self.single.take()
        self.place = CallingPlace(paths, environ)
        self.workers = Workers(paths, environ, log)
        self.bell = Listener(paths.bells, "api")
        self._rung = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_gathering = False

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until asked to stop."""
        asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        await self.alive()
        answering = Answering(self.workers, lambda: self._rung, self._gather)
        connections = Connections(answering.handle, self.log, self.silence)
        server = await loop.create_unix_server(connections, sock=self.place.socket, backlog=BACKLOG)
        loop.add_reader(self.bell.fileno(), self._hear)
        self.log.info("api_starts", socket=self.paths.api)
        ready()
        self.notifier.ready()
        await self._keep_on()
        self.notifier.stopping()
        server.close()
        connections.pre_shutdown()
        await connections.shutdown(GOODBYE)
        self.log.info("api_stops")

    def _reload(self) -> None:
        """Whoever answers next reads the settings again."""
        self.notifier.reloading()
        self.workers.reload()
        self.notifier.ready()

    async def alive(self) -> None:
        """Proof that requests are answered: the loop turns, and the store is read."""
        await self.workers.run(lambda instance: overview.status(instance.store.db))

    async def _keep_on(self) -> None:
        """Until the end: tell of life, and look after the bell."""
        pause = min(KEEP, (self.notifier.patience or 2 * KEEP) / 2)
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            with suppress(FairleadError):  # a store that is away now: that is answered, too
                await self.alive()
            self.notifier.alive()
            self._keep_bell()

    def _keep_bell(self) -> None:
        """Hang the bell up anew if somebody has tidied it away."""
        if not self.bell.is_in_place():
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.bell.fileno())
            make_directory(self.bell.directory)
            self.bell.hang_up_anew()
            loop.add_reader(self.bell.fileno(), self._hear)

    def _hear(self) -> None:
        """Somebody rings: wake those who wait, once for all rings of a moment."""
        if "reload" in self.bell.take():
            self._reload()
        self._gather()

    def _gather(self) -> None:
        if not self._is_gathering:
            self._is_gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._wake)

    def _wake(self) -> None:
        self._is_gathering = False
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """Let go of everything."""
        self.place.close()
        self.bell.close()
        self.workers.close()
        self.single.release()
        self.notifier.close()
