"""What a long-running process needs: being the only one of its kind, hearing signals, and sleeping until woken."""

import fcntl
import math
import os
import select
import signal
import time
from contextlib import suppress

from fairlead.base.bell import Listener
from fairlead.base.errors import RefusedError
from fairlead.base.files import make_directory, write_all

#: A predecessor that is on its way out is waited for this long.
PATIENCE = 5.0
#: poll(2) counts milliseconds in 32 bits; waking up for nothing once an hour costs nothing.
LONGEST_SLEEP = 3600.0


class AlreadyRunningError(RefusedError):
    """Another process of this kind runs for this instance already."""

    def __init__(self, what: str, pid: str) -> None:
        self.fact = f"{what} runs already for this instance, with pid {pid or 'unknown'}"
        how = f" with `kill {pid}`" if pid else ""
        super().__init__(f"{self.fact}: leave the work to it, or stop it first{how}.")


def lock_patiently(fd: int, patience: float) -> bool:
    """Take the flock of an open file for oneself, waiting a moment for others to go; False if they did not."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        else:
            return True


class Single:
    """A lock that the kernel frees with its holder's death: one process of a kind per instance."""

    def __init__(self, path: str, what: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._what = what

    def take(self, patience: float = PATIENCE) -> None:
        """Be the one, waiting a moment for a predecessor to go."""
        if not lock_patiently(self._fd, patience):
            pid = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            raise AlreadyRunningError(self._what, pid)
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        write_all(self._fd, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._fd)


class Waiter:
    """Sleeps until a bell rings, a watched descriptor has something, or a signal comes.

    Signal handlers only set flags; whoever loops reads them.
    """

    def __init__(self, bells: str, name: str) -> None:
        self.listener = Listener(bells, name)
        self.asked_to_stop = False
        self.asked_to_reload = False
        self._poll = select.poll()
        self._wakeup, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for fd in (self.listener.fileno(), self._wakeup):
            self._poll.register(fd, select.POLLIN)

    def listen_to_signals(self) -> None:
        """TERM and INT ask to stop, HUP asks to read the settings again."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _on_stop(self, *_: object) -> None:
        self.asked_to_stop = True

    def _on_reload(self, *_: object) -> None:
        self.asked_to_reload = True

    def watch(self, fd: int) -> None:
        """Wake up for this descriptor too."""
        self._poll.register(fd, select.POLLIN)

    def wait(self, seconds: float) -> set[str]:
        """Sleep at most so long; returns the words of all rings."""
        if not self.asked_to_stop and not self.asked_to_reload:
            self._poll.poll(math.ceil(min(max(0.0, seconds), LONGEST_SLEEP) * 1000))
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        return self.listener.take()

    def keep_bell(self) -> None:
        """Hang the bell up anew if somebody has tidied it away: without it every ring is lost."""
        if self.listener.is_in_place():
            return
        make_directory(self.listener.directory)
        before = self.listener.fileno()
        self.listener.hang_up_anew()
        self._poll.unregister(before)
        self._poll.register(self.listener, select.POLLIN)

    def close(self) -> None:
        """Stop listening."""
        signal.set_wakeup_fd(-1)
        self.listener.close()
        os.close(self._wakeup)
        os.close(self._writer)
