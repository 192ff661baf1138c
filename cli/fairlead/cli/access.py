"""How commands get at an instance: its store for reading, or all of it for changing something."""

import os
from typing import Self

from fairlead.base.clock import SystemClock
from fairlead.base.errors import UsageError
from fairlead.base.identity import user_name
from fairlead.base.logs import open_log
from fairlead.cli.quick import open_connection
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.archive import Archive
from fairlead.queue.instance import Instance, Presence
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.operations import Operations, find_task
from fairlead.queue.sqlite.store import SqliteStore
from fairlead.queue.states import FINAL, Status
from fairlead.queue.store import Share
from fairlead.queue.task import Task


class Access:
    """The store of an instance that exists already, and what is read or changed through it."""

    def __init__(self, paths: Paths | None = None) -> None:
        self.paths = paths or find_paths()
        self.store = SqliteStore(open_connection(self.paths), Share())
        self.clock = SystemClock()
        self.archive = Archive(self.paths.archive)

    def task(self, part: str) -> Task:
        """The task that a part of an id means."""
        if not part:
            raise UsageError("an empty word is no id; `fairlead list --all` shows the known ones.")
        return find_task(self.store, self.archive, part)

    def is_over(self, task: Task) -> bool:
        """Whether a task has ended for good: a lost one that may be run twice is, once it is archived as lost."""
        if task.status is not Status.LOST or not task.spec.idempotent:
            return task.status in FINAL
        record = self.archive.read(task.id)
        return record is not None and record["version"] >= task.version

    def locks(self) -> LockManager:
        """The locks, for looking."""
        return LockManager(self.store, LockFiles(self.paths.locks), self.clock, self.paths.bells, lease=0.0)


class Changing(Access):
    """The same for a command that changes something: it waits while the store is replaced, or is waited for."""

    def __init__(self) -> None:
        paths = find_paths()
        self._presence = _joined(paths)
        try:
            super().__init__(paths)
        except BaseException:
            self._leave()
            raise

    def operations(self) -> Operations:
        """What people may change."""
        log = open_log(self.paths.log_file, "cli")
        return Operations(self.paths, self.store, self.clock, log, self._operators)

    def _operators(self) -> tuple[str, ...]:
        return load(self.paths, os.environ).config.operators

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self._leave()

    def _leave(self) -> None:
        if self._presence is not None:
            self._presence.release()


def _joined(paths: Paths) -> Presence | None:
    """Be present, after the end of a replacement; where there is no such directory, nobody can be at it."""
    if not os.path.isdir(paths.run):
        return None
    presence = Presence(paths)
    presence.join()
    return presence


def open_instance() -> Instance:
    """The whole instance with its settings; it is made if it is not there yet."""
    paths = find_paths()
    os.makedirs(paths.logs, mode=0o700, exist_ok=True)
    return Instance(paths, os.environ, open_log(paths.log_file, "cli"))


def who() -> str:
    """The name of whoever runs this command."""
    return user_name(os.getuid())
