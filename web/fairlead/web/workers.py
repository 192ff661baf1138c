"""Threads that may wait for the disk, each with the instance opened for itself: SQLite's connections are a thread's."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fairlead.base.errors import FairleadError
from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.queue.instance import Instance

#: How many there are.
COUNT = 6

T = TypeVar("T")


class Workers:
    """A few threads that work on the store."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log) -> None:
        self.paths = paths
        self.environ = environ
        self.log = log
        self._pool = ThreadPoolExecutor(COUNT, "api")
        self._own = threading.local()
        self._opened: list[Instance] = []
        #: Counts the reloads that were asked for: each thread follows when it works next.
        self._settings = 0

    async def run(self, work: Callable[[Instance], T]) -> T:
        """Have a thread do this, and wait for it without keeping others waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(self._instance()))

    def reload(self) -> None:
        """Have the settings read again."""
        self._settings += 1

    def _instance(self) -> Instance:
        instance: Instance | None = getattr(self._own, "instance", None)
        if instance is None:
            self._own.read = self._settings
            instance = self._own.instance = Instance(self.paths, self.environ, self.log)
            self._opened.append(instance)
        elif self._own.read != self._settings:
            self._own.read = self._settings
            self._reload(instance)
        return instance

    def _reload(self, instance: Instance) -> None:
        try:
            changed = instance.reload()
        except FairleadError as error:
            self.log.error("settings_refused", error=str(error))
        else:
            self.log.info("settings_reloaded", changed=changed)

    def close(self) -> None:
        """Let the threads finish, then let go of the store."""
        self._pool.shutdown(cancel_futures=True)
        for instance in self._opened:
            instance.close()
