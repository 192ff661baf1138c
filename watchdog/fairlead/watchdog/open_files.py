"""Who has a file open, and who has locked it: the kernel knows, whatever the file's content says."""

import os

from fairlead.conductor import tree


def open_by(path: str) -> list[int]:
    """The processes that have this very file open, as far as this user may see them."""
    try:
        wanted = os.lstat(path)
    except FileNotFoundError:
        return []
    return [pid for pid in tree.all_pids() if _has_open(pid, wanted)]


def locked_by(path: str) -> list[int]:
    """The processes that hold a flock on this very file or directory."""
    with open("/proc/locks", encoding="ascii") as file:
        locks = [line.split() for line in file]
    # "1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF"; an inode's number alone may be another file system's as well.
    holders = {int(fields[4]) for fields in locks if fields[1] == "FLOCK" and fields[5].endswith(_inode(path))}
    return [pid for pid in open_by(path) if pid in holders]


def _inode(path: str) -> str:
    try:
        return f":{os.stat(path).st_ino}"
    except FileNotFoundError:
        return ":gone"


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        return any(_is_same(os.path.join(folder, fd), wanted) for fd in os.listdir(folder))
    except OSError:
        return False


def _is_same(path: str, wanted: os.stat_result) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)
