"""Room on the disk: while less is left than the reserve, nothing new is begun.

What has begun must be able to end: the ends of runs, the archive and the store's log are written out of the reserve.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from fairlead.base.errors import UnavailableError

#: Of a file system no more than this part is kept back, however small it is.
_PART = 10


class NoRoomError(UnavailableError):
    """There is too little room on the disk for anything new."""


class Reserve(NamedTuple):
    """What is kept back, in bytes and in files; 0 keeps nothing."""

    size: int
    files: int


def reserve_in(facts: Mapping[str, str]) -> Reserve:
    """The reserve as the store tells it to those who do not read the settings."""
    return Reserve(int(facts.get("disk_reserve", "0")), int(facts.get("inode_reserve", "0")))


def shortage(path: str, reserve: Reserve) -> str:
    """Why nothing new is begun: what is free there, and what is kept back; empty if there is room."""
    try:
        found = os.statvfs(path)
    except OSError:
        return ""  # whoever needs that place says what is wrong with it
    size = min(reserve.size, found.f_blocks * found.f_frsize // _PART)
    files = min(reserve.files, found.f_files // _PART)  # where files are not counted there are said to be none
    if found.f_bavail * found.f_frsize < size:
        from fairlead.base.sizes import show_size  # noqa: PLC0415 - `status` must feel instant

        free = show_size(found.f_bavail * found.f_frsize)
        return f"{free} are free at {path}, and limits.disk_reserve keeps back {show_size(size)}: make room there"
    if found.f_favail < files:
        free = f"{found.f_favail} more files can be made"
        return f"{free} at {path}, and limits.inode_reserve keeps back {files}: remove some there"
    return ""


def refuse_shortage(path: str, reserve: Reserve) -> None:
    """Refuse what is new while there is too little room for it."""
    if why := shortage(path, reserve):
        raise NoRoomError(f"nothing new is taken in now: {why}.")
