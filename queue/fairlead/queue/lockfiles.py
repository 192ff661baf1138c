"""The visible locks: `locks/user_NAME.lock` and `.json`, mirrors of the rows, and foreign files honoured."""

import json
import os
import time
from contextlib import suppress
from enum import StrEnum
from typing import Any

from fairlead.base.clock import iso
from fairlead.base.errors import FairleadError
from fairlead.base.files import (
    create_complete,
    make_directory,
    names_in,
    read_plain,
    remove,
    write_atomically,
)
from fairlead.base.ids import check_name, is_name
from fairlead.queue.store import Lock

_LIMIT = 65536
_PREFIX, _SUFFIX = "user_", ".lock"


class Metadata(StrEnum):
    """What can be made of a lock file's metadata."""

    GOOD = "good"
    #: Nothing is written in it: somebody made it by hand.
    NONE = "none"
    CORRUPT = "corrupt"


class LockFile:
    """What is known of a lock file that is there."""

    def __init__(self, user: str, path: str, kind: Metadata, data: dict[str, Any]) -> None:
        self.user = user
        self.path = path
        self.kind = kind
        self.data = data

    @property
    def lock_id(self) -> str:
        """The lock id it names, if any; what nobody could have written down is none."""
        named = self.data.get("lock_id")
        return named if isinstance(named, str) and named.isprintable() else ""


class LockFiles:
    """The lock files of one instance."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def put(self, lock: Lock) -> bool:
        """Show a lock that was taken; False if a file of that name is there already."""
        if lock.user is None:
            return True
        data = _metadata(lock)
        if not create_complete(self._path(lock.user, ".lock"), data):
            return False
        write_atomically(self._path(lock.user, ".json"), data)
        return True

    def refresh(self, lock: Lock) -> None:
        """Write a lock's metadata anew: its lease was renewed, or somebody spoilt the file."""
        if lock.user is not None:
            write_atomically(self._path(lock.user, ".json"), _metadata(lock))

    def drop(self, user: str | None, lock_id: str) -> None:
        """Remove the files of this lock while its row is still held; a file of somebody else stays."""
        if user is None:
            return
        found = self.read(user)
        if found is not None and lock_id and found.lock_id == lock_id:
            remove(self._path(user, ".json"))
            with suppress(IsADirectoryError):  # somebody put one in its place: that is his lock now
                remove(self._path(user, ".lock"))

    def read(self, user: str) -> LockFile | None:
        """The lock file of a user, if there is one."""
        path = self._path(user, ".lock")
        if not os.path.lexists(path):
            return None
        kind, data = _parse(path)
        if kind is not Metadata.GOOD:
            # Other tools write the metadata beside the lock.
            beside, other = _parse(self._path(user, ".json"))
            if beside is not Metadata.NONE:
                kind, data = beside, other
        return LockFile(user, path, kind, data)

    def path(self, user: str) -> str:
        """Where a user's lock file is, when there is one."""
        return self._path(user, ".lock")

    def users(self) -> set[str]:
        """The users who have a lock file, ours or not. Whatever cannot name a user locks nobody."""
        names = names_in(self.directory)
        between = (
            name[len(_PREFIX) : -len(_SUFFIX)] for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        )
        return {user for user in between if is_name(user)}

    def set_aside(self, user: str) -> str:
        """Move a user's lock files out of the way, keeping them for whoever wants to know."""
        folder = os.path.join(self.directory, "aside")
        make_directory(folder)
        target = os.path.join(folder, f"{_PREFIX}{user}.{time.time_ns()}")
        for suffix in (".json", ".lock"):
            if os.path.lexists(self._path(user, suffix)):
                os.rename(self._path(user, suffix), target + suffix)
        return target

    def _path(self, user: str, suffix: str) -> str:
        return os.path.join(self.directory, f"{_PREFIX}{check_name(user, 'user')}{suffix}")


def _metadata(lock: Lock) -> bytes:
    data = {
        "user": lock.user,
        "lock_id": lock.lock_id,
        "task_id": lock.task_id,
        "acquired_at": iso(lock.acquired_at),
        "acquired_by_pid": lock.holder.pid,
        "expires_at": iso(lock.expires_at),
        "host": lock.holder.host,
        "boot_id": lock.holder.boot_id,
        "pid_start": lock.holder.start,
        "token": lock.token,
        "kind": lock.kind,
    }
    return json.dumps(data, indent=2).encode() + b"\n"


def _parse(path: str) -> tuple[Metadata, dict[str, Any]]:
    try:
        text = read_plain(path, _LIMIT)
        data = json.loads(text) if text.strip() else None
    except FileNotFoundError:
        return Metadata.NONE, {}
    except (FairleadError, OSError, ValueError, RecursionError):
        return Metadata.CORRUPT, {}
    if data is None:
        return Metadata.NONE, {}
    return (Metadata.GOOD, data) if isinstance(data, dict) else (Metadata.CORRUPT, {})
