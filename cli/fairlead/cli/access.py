"""How commands get at an instance: by its store where they may open it, by its socket elsewhere.

Whoever asks notices no difference: `Desk` and `Remote` have the same methods.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from fairlead.base.clock import SystemClock
from fairlead.base.errors import RefusedError
from fairlead.base.logs import Log, open_log
from fairlead.cli.quick import asker, is_direct, open_connection
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.config.schema import Config
from fairlead.desk.desk import Desk
from fairlead.queue.instance import Instance, Presence
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.rights import master
from fairlead.queue.sqlite.store import SqliteStore
from fairlead.queue.store import Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.remote import Remote

    AnyDesk = Desk | Remote


class NotYoursError(RefusedError):
    """This is the system's instance: only root may do that, as with sudo."""


class Access:
    """The store of an instance that exists already; settings, log and locks come when they are asked for."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.store = SqliteStore(open_connection(paths), Share())
        self.clock = SystemClock()

    @cached_property
    def config(self) -> Config:
        """The settings, which most commands do without."""
        return load(self.paths, os.environ).config

    @cached_property
    def log(self) -> Log:
        """Where to tell what was changed."""
        return open_log(self.paths.log_file, "cli")

    @cached_property
    def locks(self) -> LockManager:
        """The locks, for looking."""
        return LockManager(self.store, LockFiles(self.paths.locks), self.clock, self.paths.bells, lease=0.0)

    @property
    def lease(self) -> float:
        """How long a lock is good for without a sign of life, in seconds."""
        return self.config.per_user_serialization.lock_timeout_seconds


def reading() -> "AnyDesk":
    """A desk for whoever only looks."""
    paths = find_paths()
    return Desk(Access(paths), master(asker())) if is_direct(paths) else _calling(paths)


@contextmanager
def changing() -> "Iterator[AnyDesk]":
    """A desk for whoever changes something: he waits while the store is replaced, or is waited for."""
    paths = find_paths()
    if not is_direct(paths):
        yield _calling(paths)
        return
    presence = _joined(paths)
    try:
        access = Access(paths)
        try:
            yield Desk(access, master(asker()))
        finally:
            access.store.close()
    finally:
        if presence is not None:
            presence.release()


@contextmanager
def making() -> "Iterator[AnyDesk]":
    """A desk with all of an instance behind it, which is made if it is not there yet."""
    paths = find_paths()
    if not is_direct(paths):
        yield _calling(paths)
        return
    instance = open_instance()
    try:
        yield Desk(instance, master(asker()))
    finally:
        instance.close()


def _calling(paths: Paths) -> "Remote":
    """The desk at the other end of the socket."""
    from fairlead.cli.remote import Remote  # noqa: PLC0415 - one's own instance needs no HTTP

    return Remote(paths)


def _joined(paths: Paths) -> Presence | None:
    """Be present, after the end of a replacement; where there is no such directory, nobody can be at it."""
    if not os.path.isdir(paths.run):
        return None
    presence = Presence(paths)
    presence.join()
    return presence


def own_paths() -> Paths:
    """An instance that this process may work on itself; refuses the system's to those who may only ask it."""
    paths = find_paths()
    if not is_direct(paths):
        raise NotYoursError
    return paths


def open_instance() -> Instance:
    """The whole instance with its settings; it is made if it is not there yet."""
    paths = own_paths()
    os.makedirs(paths.logs, mode=0o700, exist_ok=True)
    return Instance(paths, os.environ, open_log(paths.log_file, "cli"))
