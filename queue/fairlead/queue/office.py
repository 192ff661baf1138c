"""What an operation works with: an opened instance, or as much of one as a command needs."""

from typing import Protocol

from fairlead.base.clock import Clock
from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.locks import LockManager
from fairlead.queue.sqlite.store import SqliteStore


class Office(Protocol):
    """Paths, store, clock and log; settings and locks may come only when they are asked for."""

    @property
    def paths(self) -> Paths:
        """Where everything is."""

    @property
    def store(self) -> SqliteStore:
        """The truth."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def log(self) -> Log:
        """Where to tell what was done."""

    @property
    def config(self) -> Config:
        """The settings."""

    @property
    def locks(self) -> LockManager:
        """The locks."""

    @property
    def lease(self) -> float:
        """How long a lock is good for without a sign of life, in seconds."""
