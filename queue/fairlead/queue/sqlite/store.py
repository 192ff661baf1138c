"""The store as the rest of Fairlead sees it."""

from fairlead.queue.sqlite.admission import Admission
from fairlead.queue.sqlite.claiming import Claiming
from fairlead.queue.sqlite.connection import Connection
from fairlead.queue.sqlite.explaining import Explaining
from fairlead.queue.sqlite.keeping import Keeping
from fairlead.queue.sqlite.locking import Locking
from fairlead.queue.sqlite.reading import Reading
from fairlead.queue.sqlite.statements import QUICK_CHECK
from fairlead.queue.store import Share


class SqliteStore(Admission, Claiming, Locking, Reading, Keeping, Explaining):
    """One SQLite file that is the truth about tasks and locks."""

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file, at most a few things; nothing if it is sound."""
        return [row[0] for row in self.db.rows(QUICK_CHECK) if row[0] != "ok"]

    def close(self) -> None:
        """Let go of the store."""
        self.db.close()


def open_store(path: str, share: Share | None = None) -> SqliteStore:
    """Open the store, making or migrating it as needed."""
    return SqliteStore(Connection(path), share or Share())
