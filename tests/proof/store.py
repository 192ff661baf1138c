"""The product's store, read from outside: a copy of its files, opened with Python's own SQLite."""

import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing

from tests.proof.evidence import name_in


class BrokenStoreError(Exception):
    """The store cannot be read."""


def statuses(home: str) -> dict[str, str]:
    """The status of every task in the store, by the judge's name; the store itself is not touched."""
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("", "-wal"):
            if os.path.exists(os.path.join(home, f"queue.db{ending}")):
                shutil.copy(os.path.join(home, f"queue.db{ending}"), os.path.join(folder, f"queue.db{ending}"))
        try:
            return _read(os.path.join(folder, "queue.db"))
        except sqlite3.DatabaseError as error:
            raise BrokenStoreError(str(error)) from error


def _read(path: str) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        check = db.execute("PRAGMA integrity_check").fetchone()[0]
        if check != "ok":
            raise BrokenStoreError(check)
        rows = db.execute("SELECT spec, status FROM tasks").fetchall()
    return {name_in(json.loads(spec)): status for spec, status in rows}
