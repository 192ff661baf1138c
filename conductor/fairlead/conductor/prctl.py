"""What a supervisor tells the kernel about itself: that orphans come to it, and which run it looks after.

The latter is the name of its process. A supervisor may look after one run after another: that it lives does not prove
that it still looks after a certain one.
"""

import ctypes
from zlib import crc32

from fairlead.base.files import read_plain

_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
_PREFIX = "run-"
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Let orphans of this process's children come back to it instead of to init."""
    if _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def take_up(lock_id: str) -> None:
    """Say that this process looks after the run under this lock."""
    _prctl(_SET_NAME, _name(lock_id).encode())


def lay_down() -> None:
    """Say that this process looks after no run now."""
    _prctl(_SET_NAME, f"{_PREFIX}none".encode())


def has_moved_on(pid: int, lock_id: str) -> bool:
    """Whether a process says that it looks after another run than this one, or none.

    A name of another kind says nothing, nor does one that cannot be read.
    """
    return (name := _name_of(pid)).startswith(_PREFIX) and name != _name(lock_id)


def looks_after(pid: int, lock_id: str) -> bool:
    """Whether a process says that it looks after this run."""
    return _name_of(pid) == _name(lock_id)


def _name_of(pid: int) -> str:
    try:
        return read_plain(f"/proc/{pid}/comm", 64).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _name(lock_id: str) -> str:
    """The kernel keeps fifteen bytes of a name: enough to tell the runs of a machine apart."""
    return f"{_PREFIX}{crc32(lock_id.encode()):08x}"
