"""Who has a file open: the kernel knows, whatever the file's content says."""

import os

from fairlead.conductor import tree


def open_by(path: str) -> list[int]:
    """The processes that have this very file open, as far as this user may see them."""
    try:
        wanted = os.lstat(path)
    except FileNotFoundError:
        return []
    return [pid for pid in tree.all_pids() if _has_open(pid, wanted)]


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
