"""One connection to the SQLite file: opened safely, errors translated, transactions immediate.

Nothing heavy is imported here: the short commands read through this module.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from fairlead.queue.errors import (
    StoreBrokenError,
    StoreBusyError,
    StoreUnavailableError,
    StoreVersionError,
)
from fairlead.queue.sqlite.schema import MIGRATIONS, VERSION

#: 3.7.0 to 3.51.2 can corrupt a WAL database when two connections write or checkpoint at once.
OLDEST_SQLITE = (3, 51, 3)
BUSY_MS = 10_000
IN_MEMORY = ":memory:"
#: The page cache of one connection, in KiB: enough for the index paths of a million tasks.
CACHE_KIB = 16_384

Row = tuple[Any, ...]


class _Process:
    """This process's pid, known without asking the kernel before every statement."""

    def __init__(self) -> None:
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        """Ask for it: at the start, and in every child."""
        self.pid = os.getpid()


_process = _Process()


class Connection:
    """A connection of one process. It must not be carried across a fork."""

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        _check_library()
        self.path = path
        self._pid = _process.pid
        if not read_only:
            _make_private(path)
        with translated(path):
            self._handle = apsw.Connection(path, flags=_flags(read_only=read_only))
            self._configure()
            self._check_version(read_only=read_only)

    @property
    def _db(self) -> apsw.Connection:
        """SQLite's connection, but not for a child that got it through a fork: the two would ruin the file."""
        if self._pid != _process.pid:
            raise StoreBrokenError(f"{self.path} was opened by process {self._pid}: open it again after a fork.")
        return self._handle

    def _configure(self) -> None:
        self._db.set_busy_timeout(BUSY_MS)
        self._db.pragma("mmap_size", 0)
        self._db.pragma("cache_size", -CACHE_KIB)
        self._db.pragma("synchronous", "full")

    def _check_version(self, *, read_only: bool) -> None:
        version = self._db.pragma("user_version")
        if version > VERSION:
            raise StoreVersionError(
                f"{self.path} has schema version {version}, this Fairlead knows up to {VERSION}: "
                "upgrade Fairlead, or point it at another instance."
            )
        if version < VERSION and read_only:
            raise StoreVersionError(
                f"{self.path} has schema version {version}, this Fairlead needs {VERSION}: "
                "its daemon upgrades it when it starts."
            )
        if version < VERSION:
            self._use_wal()
            self._migrate()

    def _use_wal(self) -> None:
        """Switch the file to a write-ahead log. While others do the same, SQLite does not wait: so we do."""
        deadline = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                mode = self._db.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                break
        if mode != "wal":
            raise StoreUnavailableError(f"{self.path} cannot have a write-ahead log: put it on a local disk.")

    def _migrate(self) -> None:
        """Bring the file to this version, script by script; several processes may try at once."""
        for version, script in enumerate(MIGRATIONS, start=1):
            with self.transaction():
                if self._db.pragma("user_version") < version:
                    self._db.execute(script)
                    self._db.pragma("user_version", version)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing of it, durable when it ends.

        IMMEDIATE takes the write lock first: a transaction that reads before it writes could otherwise be
        refused in the middle.
        """
        with translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Several reads of one and the same moment."""
        with translated(self.path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def run(self, sql: str, values: Row | dict[str, Any] = ()) -> int:
        """Execute and return how many rows were changed."""
        db = self._db
        db.execute(sql, values)
        return db.changes()

    def rows(self, sql: str, values: Row | dict[str, Any] = ()) -> list[Row]:
        """Execute and return every row."""
        with translated(self.path):
            return self._db.execute(sql, values).fetchall()

    def row(self, sql: str, values: Row | dict[str, Any] = ()) -> Row | None:
        """Execute and return the first row, if there is one."""
        with translated(self.path):
            return self._db.execute(sql, values).fetchone()

    def value(self, sql: str, values: Row | dict[str, Any] = ()) -> Any:  # noqa: ANN401 - any column
        """Execute and return the first column of the first row."""
        row = self.row(sql, values)
        return None if row is None else row[0]

    def close(self) -> None:
        """Close; a connection that came through a fork is only forgotten."""
        if self._pid == _process.pid:
            self._handle.close()


def _make_private(path: str) -> None:
    """Make the file, for its owner alone, before SQLite does; the log and its index get the same rights.

    By mknod, since a descriptor of ours would end SQLite's locks in this process when it is closed.
    """
    if path == IN_MEMORY:
        return
    with suppress(OSError):  # it is there, or cannot be: then SQLite says so
        os.mknod(path, 0o600)


def _flags(*, read_only: bool) -> int:
    # Read-only commands still need write access to the WAL's index, so they open read-write but never create.
    return apsw.SQLITE_OPEN_READWRITE | (0 if read_only else apsw.SQLITE_OPEN_CREATE)


def _check_library() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < OLDEST_SQLITE:
        raise StoreVersionError(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a database that two processes write to; "
            f"at least {'.'.join(map(str, OLDEST_SQLITE))} is needed: pip install --upgrade apsw"
        )


@contextmanager
def translated(path: str) -> Iterator[None]:
    """SQLite's errors as ours: what to wait for, what to repair, what to stop at."""
    try:
        yield
    except apsw.Error as error:
        raise _translate(path, error) from error


def _translate(path: str, error: apsw.Error) -> Exception:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusyError(f"{path} is busy with other writers; try again in a moment.")
    if isinstance(error, apsw.CantOpenError | apsw.FullError | apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreUnavailableError(f"{path} cannot be opened or written to now: {error}")
    if isinstance(error, apsw.IOError | apsw.CorruptError | apsw.NotADBError):
        return StoreBrokenError(
            f"{path} cannot be trusted: {error}. Check the disk; `fairlead rebuild --replace` makes a new one."
        )
    return error
