"""The visible locks: `locks/user_NAME.lock` and `.json`, mirrors of the rows, and foreign files honoured."""

import json
import os
import time
from contextlib import suppress
from enum import Enum, StrEnum, auto
from typing import Any

from fairlead.base.clock import iso
from fairlead.base.files import (
    UnsafeFileError,
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
#: No pid has more digits.
_LONGEST_PID = 10
_PREFIX, _SUFFIX = "user_", ".lock"


class Metadata(StrEnum):
    """What can be made of a lock file's metadata."""

    GOOD = "good"
    #: Nothing that could ever have been metadata: somebody made it, by hand or with a simpler tool.
    BY_HAND = "by hand"
    CORRUPT = "corrupt"


class Content(Enum):
    """What is in one file, taken by itself."""

    OBJECT = auto()
    #: It began as metadata.
    HALF_OBJECT = auto()
    #: No text, or it cannot be read.
    GARBAGE = auto()
    NOTHING = auto()
    #: Words or a number, or no regular file at all: none of ours ever becomes that by itself.
    SOMEBODYS = auto()
    MISSING = auto()


class LockFile:
    """What is known of a lock file that is there."""

    def __init__(
        self, user: str, path: str, kind: Metadata, data: dict[str, Any], *, is_somebodys: bool = False
    ) -> None:
        self.user = user
        self.path = path
        self.kind = kind
        self.data = data
        #: The lock itself cannot be one of ours, whatever the metadata beside it says.
        self.is_somebodys = is_somebodys

    @property
    def lock_id(self) -> str:
        """The lock id it names, if any; what nobody could have written down is none."""
        named = self.data.get("lock_id")
        return named if isinstance(named, str) and named.isprintable() else ""

    @property
    def pid(self) -> int | None:
        """The pid it names, if any."""
        named = self.data.get("acquired_by_pid")
        return named if isinstance(named, int) and not isinstance(named, bool) else None

    @property
    def maker(self) -> str:
        """Whose it seems to be, for people."""
        origin = {
            Metadata.GOOD: "another tool's",
            Metadata.BY_HAND: "made by hand",
            Metadata.CORRUPT: "with metadata that was spoilt",
        }
        return origin[self.kind] + (f", naming pid {self.pid}" if self.pid is not None else "")

    @property
    def age(self) -> float | None:
        """Seconds since it was last written, by the wall clock; None if it has gone."""
        try:
            return max(0.0, time.time() - os.lstat(self.path).st_mtime)
        except FileNotFoundError:
            return None


class LockFiles:
    """The lock files of one instance."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def put(self, lock: Lock) -> bool:
        """Show a lock that was taken; False if a file of that name is there already."""
        if lock.user is None:
            return True
        data = _metadata(lock)
        make_directory(self.directory)  # whoever tidies up may have removed it
        if not create_complete(self._path(lock.user, ".lock"), data):
            return False
        self._write_beside(lock.user, data)
        return True

    def refresh(self, lock: Lock) -> None:
        """Write a lock's metadata anew: its lease was renewed, or somebody spoilt the file."""
        if lock.user is not None:
            self._write_beside(lock.user, _metadata(lock))

    def _write_beside(self, user: str, data: bytes) -> None:
        with suppress(IsADirectoryError):  # somebody put one in its place; the lock itself says the same
            write_atomically(self._path(user, ".json"), data)

    def drop(self, user: str | None, lock_id: str) -> None:
        """Remove the files of this lock while its row is still held; a file of somebody else stays."""
        if user is None:
            return
        found = self.read(user)
        if found is None or not lock_id or found.lock_id != lock_id:
            return
        # Whatever somebody has put in the place of ours stays: that is his lock now.
        for suffix in (".json",) if found.is_somebodys else (".json", ".lock"):
            with suppress(IsADirectoryError):
                remove(self._path(user, suffix))

    def read(self, user: str) -> LockFile | None:
        """The lock file of a user, if there is one."""
        path = self._path(user, ".lock")
        if not os.path.lexists(path):
            return None
        content, data = _parse(path)
        if content is Content.OBJECT:
            return LockFile(user, path, Metadata.GOOD, data)
        beside, other = _parse(self._path(user, ".json"))
        kind = _kind(content, beside)
        if kind is Metadata.GOOD:
            data = other  # other tools write the metadata beside the lock
        return LockFile(user, path, kind, data, is_somebodys=content is Content.SOMEBODYS)

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


def _kind(lock: Content, beside: Content) -> Metadata:
    """What a lock without metadata of its own is, by its content and by what lies beside it.

    Ours are complete before they get their name, so only a crash of the disk or somebody's hand spoils one, and then it
    is half an object, or garbage beside what was written with it. Everything else was never ours, and in doubt it is
    somebody's who wants to keep agents away.
    """
    if beside is Content.OBJECT:
        return Metadata.GOOD
    if lock is Content.HALF_OBJECT:
        return Metadata.CORRUPT
    if lock is Content.GARBAGE and beside is not Content.MISSING:
        return Metadata.CORRUPT
    if lock is Content.NOTHING and beside in (Content.HALF_OBJECT, Content.GARBAGE):
        return Metadata.CORRUPT  # it was meant to have some
    return Metadata.BY_HAND


def _parse(path: str) -> tuple[Content, dict[str, Any]]:
    try:
        # One of ours has two names for a moment, and keeps them if its maker is killed just then.
        text = read_plain(path, _LIMIT, linked=True).decode().strip()
    except FileNotFoundError:
        return Content.MISSING, {}
    except UnsafeFileError:
        return Content.SOMEBODYS, {}
    except (OSError, UnicodeDecodeError):
        return Content.GARBAGE, {}
    return _parse_text(text)


def _parse_text(text: str) -> tuple[Content, dict[str, Any]]:
    if not text:
        return Content.NOTHING, {}
    if "\0" in text:
        return Content.GARBAGE, {}
    if text.startswith("{"):
        return _parse_object(text)
    is_pid = text.isascii() and text.isdigit() and len(text) <= _LONGEST_PID
    return Content.SOMEBODYS, {"acquired_by_pid": int(text)} if is_pid else {}


def _parse_object(text: str) -> tuple[Content, dict[str, Any]]:
    try:
        return Content.OBJECT, json.loads(text)
    except (ValueError, RecursionError):
        return Content.HALF_OBJECT, {}
