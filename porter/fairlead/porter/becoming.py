"""Becoming a user for good."""

import ctypes
import os
import resource
import signal

from msgspec import Struct

from fairlead.base.errors import FairleadError

_NO_NEW_PRIVILEGES = 38
#: What a clerk may use: minutes of processor time, a few descriptors, and no more memory than a service can spare.
_LIMITS = {
    resource.RLIMIT_CPU: 120,
    resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_AS: 1 << 30,
}


class NotBecomeError(FairleadError):
    """The process has not become that user."""


class Identity(Struct, frozen=True):
    """A user as the system knows him."""

    name: str
    uid: int
    gid: int
    home: str


def become(who: Identity) -> None:
    """Become this user with his groups, and see that there is no way back."""
    os.initgroups(who.name, who.gid)
    os.setresgid(who.gid, who.gid, who.gid)
    os.setresuid(who.uid, who.uid, who.uid)
    if os.getresuid() != (who.uid,) * 3 or os.getresgid() != (who.gid,) * 3 or who.uid == 0 or _can_go_back():
        raise NotBecomeError(f"could not become {who.name}")
    if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise NotBecomeError(f"could not give up rights that programs of {who.name} would give")


def _can_go_back() -> bool:
    try:
        os.setuid(0)
    except PermissionError:
        return False
    return True


def settle_in(keep: int) -> None:
    """Leave everything of the parent behind but one descriptor: signals, environment, directory, limits."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    # Whoever writes to a file while we ask about it has the kernel tell us; by default that kills.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    highest = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep)
    os.closerange(keep + 1, highest)
    os.environ.clear()
    os.umask(0o077)
    os.chdir("/")
    for limit, value in _LIMITS.items():
        resource.setrlimit(limit, (value, value))
