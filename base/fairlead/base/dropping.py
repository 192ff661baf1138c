"""Files that somebody drops: which are meant for us, and whether somebody still writes to one."""

import errno
import fcntl
import os

from fairlead.base.files import opened

#: Files that somebody is still working on, by their name.
UNFINISHED = ("~", ".tmp", ".swp", ".part")
#: Where a spool keeps what was refused.
REJECTED = "rejected"


def is_left_alone(name: str) -> bool:
    """Whether a name says that the file is not, or not yet, meant for us."""
    return name.startswith(".") or name.endswith(UNFINISHED) or name == REJECTED


def being_written(path: str) -> bool:
    """Whether somebody has the file open for writing: a read lease is refused then."""
    try:
        with opened(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW) as fd:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        # Other errors: not ours to ask about; the reader will say what is wrong.
        return error.errno == errno.EAGAIN
    return False
