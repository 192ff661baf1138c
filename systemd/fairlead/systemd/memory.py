"""Whether a unit ran out of memory, on hosts with the first version of control groups.

With the second version systemd says so itself. With the first the kernel tells whoever has asked for it, once for
every time that memory runs out, and once when the group goes.
"""

import os
import select
from contextlib import suppress

from fairlead.base.files import opened

#: The end of a group is told after so many seconds at the most, of all counters within a moment.
_END, _MOMENT = 0.2, 0.01
_HIERARCHY = "/sys/fs/cgroup/memory"


class Watches:
    """What was asked of the kernel, by unit."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def begin(self, name: str, cgroup: str) -> None:
        """Have the kernel count from now on; where it does not count in this way, systemd does."""
        folder = _HIERARCHY + cgroup
        if cgroup.strip("/") and os.path.isdir(folder):
            with suppress(OSError):  # gone already, or not ours to ask
                self._watches[name] = _Watch(folder)

    def has_run_out(self, name: str) -> bool:
        """Whether the memory of a unit has run out since."""
        watch = self._watches.get(name)
        return watch is not None and watch.has_run_out

    def end(self, name: str) -> None:
        """Nobody will ask any more."""
        if watch := self._watches.pop(name, None):
            watch.close()

    def close(self) -> None:
        """Nobody will ask for any of them any more."""
        for name in list(self._watches):
            self.end(name)


class _Watch:
    """One group's memory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._out = _Counter(folder, "memory.oom_control")
        self._ran_out = 0
        try:
            # This much is never used: it is told of the group's end alone.
            self._gone = _Counter(folder, "memory.usage_in_bytes", str(1 << 60))
        except OSError:
            self._out.close()
            raise

    @property
    def has_run_out(self) -> bool:
        """Whether memory has run out: told once for that, and once for the group's end, which comes a moment late."""
        is_gone = not os.path.isdir(self._folder)
        self._ran_out += self._out.take()
        if is_gone and self._ran_out == 1:
            self._gone.wait(_END)
            self._out.wait(_MOMENT)
            self._ran_out += self._out.take()
        return self._ran_out > int(is_gone)

    def close(self) -> None:
        self._out.close()
        self._gone.close()


class _Counter:
    """What the kernel counts of one thing."""

    def __init__(self, folder: str, what: str, argument: str = "") -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            with (
                opened(os.path.join(folder, what), os.O_RDONLY) as watched,
                opened(os.path.join(folder, "cgroup.event_control"), os.O_WRONLY) as requests,
            ):
                os.write(requests, f"{self._fd} {watched} {argument}".encode())
        except OSError:
            os.close(self._fd)
            raise

    def take(self) -> int:
        """How often it has happened since the last time."""
        try:
            return os.eventfd_read(self._fd)
        except BlockingIOError:
            return 0

    def wait(self, seconds: float) -> None:
        """Wait until it happens."""
        select.select([self._fd], [], [], seconds)

    def close(self) -> None:
        os.close(self._fd)
