"""What a supervisor tells the kernel about itself: that orphans come to it, and which run it looks after.

The latter is the name of its process. A supervisor may look after one run after another: that it lives does not prove
that it still looks after a certain one.
"""

import ctypes

from fairlead.base.files import read_plain

_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
#: The kernel keeps so many bytes of a name.
_NAME_ROOM = 15
_PREFIX = "run-"
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Let orphans of this process's children come back to it instead of to init."""
    if _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def take_up(token: int) -> None:
    """Say that this process looks after the run with this token."""
    _prctl(_SET_NAME, _name(token).encode())


def lay_down() -> None:
    """Say that this process looks after no run now."""
    _prctl(_SET_NAME, f"{_PREFIX}none".encode())


def has_moved_on(pid: int, token: int) -> bool:
    """Whether a process says that it looks after another run than this one, or none.

    A name of another kind says nothing, nor does one that cannot be read.
    """
    try:
        name = read_plain(f"/proc/{pid}/comm", 64).decode("utf-8", "replace").strip()
    except OSError:
        return False
    return name.startswith(_PREFIX) and name != _name(token)


def _name(token: int) -> str:
    return f"{_PREFIX}{token}"[:_NAME_ROOM]
