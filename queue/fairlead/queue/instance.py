"""What every process of one instance works with: its paths, settings, store, locks, clock and log."""

import fcntl
import os
from collections.abc import Mapping

from fairlead.base.clock import Clock, SystemClock
from fairlead.base.errors import RefusedError
from fairlead.base.files import folders_in, make_directory, names_in
from fairlead.base.logs import Log
from fairlead.base.principals import forget_groups
from fairlead.base.service import PATIENCE, lock_patiently
from fairlead.config.loading import Settings, load
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.config.showing import changed_keys
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.room import Reserve
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.store import Share


class StoreMissingError(RefusedError):
    """The store is gone, but tasks are not: `fairlead rebuild` makes a new one from the files."""


class InUseError(RefusedError):
    """Somebody works with the store: wait for the end of other commands, then try again."""


class Presence:
    """Whoever works with the store is present; who replaces it must be alone. The kernel ends it with its process."""

    def __init__(self, paths: Paths) -> None:
        self._fd = os.open(os.path.join(paths.run, "store.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def join(self) -> None:
        """Be present, after the end of a replacement."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def alone(self, patience: float = PATIENCE) -> None:
        """Be the only one, waiting a moment for others to go."""
        if not lock_patiently(self._fd, patience):
            raise InUseError

    def release(self) -> None:
        """Let go."""
        os.close(self._fd)


class Instance:
    """One instance, opened by one process."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log, clock: Clock | None = None) -> None:
        self.paths = paths
        self.environ = environ
        self.log = log
        self.clock = clock or SystemClock()
        self.settings: Settings = load(paths, environ)
        for directory in paths.directories():
            make_directory(directory)
        self._presence = Presence(paths)
        self._presence.join()
        self.store = self._open_store()
        self.locks = LockManager(self.store, LockFiles(paths.locks), self.clock, paths.bells, self.lease)

    def _open_store(self) -> SqliteStore:
        try:
            refuse_missing_store(self.paths)
            return open_store(self.paths.store, share_of(self.config))
        except BaseException:
            self._presence.release()  # who has no store is in nobody's way
            raise

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.settings.config

    @property
    def lease(self) -> float:
        """How long a lock is good for without a sign of life, in seconds."""
        return self.config.per_user_serialization.lock_timeout_seconds

    def reload(self) -> list[str]:
        """Read the settings again; returns the keys that changed. Wrong settings change nothing."""
        before, self.settings = self.settings, load(self.paths, self.environ)
        forget_groups()
        self.locks.lease = self.lease
        # Here, and not with the daemon's `apply_shares`: whoever records an end charges it.
        self.store.share = share_of(self.config)
        return changed_keys(before, self.settings)

    def apply_shares(self) -> None:
        """Let the store charge by the settings in force, and tell those who read it without them."""
        self.store.set_shares(share_of(self.config), now=self.clock.wall_ms())
        self.store.set_facts(facts_of(self.config))

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()
        self._presence.release()


def share_of(config: Config) -> Share:
    """What the accounts need of the settings."""
    share = config.fair_share
    return Share(
        half_life=share.half_life,
        weights=share.weights,
        project_weights=share.project_weights,
        charge_cost=share.charge == "cost",
    )


def facts_of(config: Config) -> dict[str, str]:
    """What `status` and `why` need of the settings, for commands that do not read them."""
    return {
        "slots_max": str(config.slots.max),
        "serialized": str(int(config.per_user_serialization.enabled)),
        "ageing": str(config.fair_share.ageing),
        "disk_reserve": str(config.limits.disk_reserve),
        "inode_reserve": str(config.limits.inode_reserve),
    }


def reserve_of(config: Config) -> Reserve:
    """What is kept back on the disk, by the settings."""
    return Reserve(config.limits.disk_reserve, config.limits.inode_reserve)


def refuse_missing_store(paths: Paths) -> None:
    """A new, empty store beside accepted tasks, runs or records would forget the one and double the other."""
    if os.path.exists(paths.store):
        return
    runs = [name for project in folders_in(paths.conductor) for name in names_in(os.path.join(project, "active"))]
    files = [name for folder in folders_in(paths.accepted) for name in names_in(folder)]
    if runs or files:
        raise StoreMissingError(
            f"{paths.store} is missing, but there are {len(files)} accepted tasks and {len(runs)} runs: "
            "`fairlead rebuild` makes a new store from them."
        )
    if any(names_in(month) for month in folders_in(paths.archive)):
        raise StoreMissingError(
            f"{paths.store} is missing, but there is an archive: `fairlead rebuild` makes a new store from it."
        )
