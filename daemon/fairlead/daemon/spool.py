"""The spool directory: which dropped files are complete, and being woken when one is."""

import os
import signal
import stat
from contextlib import suppress

from inotify_simple import INotify, flags

from fairlead.base.clock import Clock
from fairlead.base.dropping import being_written, is_left_alone
from fairlead.base.files import make_directory
from fairlead.config.paths import Paths

_SPOOL_EVENTS = flags.CLOSE_WRITE | flags.MOVED_TO
_LOCK_EVENTS = flags.DELETE | flags.MOVED_FROM


class Spool:
    """Looks at the spool, by notification where the kernel gives it and by polling in any case."""

    def __init__(self, paths: Paths, clock: Clock, *, settle: float, inotify: bool) -> None:
        self.paths = paths
        self.clock = clock
        self.settle = settle
        self.inotify = self._watch() if inotify else None
        self._lock_watch: int | None = None
        self._closed: set[str] = set()
        #: Entries that could not be taken, as they were then: looked at again once they are changed.
        self._left: dict[str, tuple[int, int]] = {}
        # Whoever writes to a file while `being_written` asks about it has the kernel tell us; by default that kills.
        signal.signal(signal.SIGIO, lambda *_: None)

    def _watch(self) -> INotify | None:
        """Watch the spool; None where the kernel has no watch left to give."""
        try:
            watch = INotify(nonblocking=True)
        except OSError:
            return None
        try:
            watch.add_watch(self.paths.spool, _SPOOL_EVENTS)
        except OSError:
            watch.close()
            return None
        return watch

    def _bring_back(self) -> None:
        """Make the spool anew that somebody removed, and watch it again."""
        make_directory(self.paths.spool)
        if self.inotify is not None:
            with suppress(OSError):  # no watch left: then the poll finds files
                self.inotify.add_watch(self.paths.spool, _SPOOL_EVENTS)

    def watch_locks(self, *, wanted: bool) -> bool:
        """Be woken, or not, when a lock file goes; True if that is new, so that one may have gone just before.

        Our own lock files come and go with every task: they must not wake us while nobody else's is there.
        """
        if self.inotify is None or wanted == (self._lock_watch is not None):
            return False
        with suppress(OSError):  # no watch left, or the directory was replaced: then the poll finds out
            if self._lock_watch is None:
                self._lock_watch = self.inotify.add_watch(self.paths.locks, _LOCK_EVENTS)
            else:
                watch, self._lock_watch = self._lock_watch, None
                self.inotify.rm_watch(watch)
        return self._lock_watch is not None

    def hear(self) -> bool:
        """Take in what the kernel says about closed files; True if it says anything."""
        if self.inotify is None:
            return False
        events = []
        with suppress(BlockingIOError):
            events = self.inotify.read(timeout=0)
        self._closed |= {event.name for event in events if event.wd != self._lock_watch}
        return bool(events)

    def complete(self) -> tuple[list[str], bool]:
        """The names of complete files, oldest first, and whether others are still settling."""
        self.hear()
        if not os.path.isdir(self.paths.spool):
            self._bring_back()
        closed, self._closed = self._closed, set()
        found: list[tuple[int, str]] = []
        settling = False
        with os.scandir(self.paths.spool) as entries:
            for entry in entries:
                if is_left_alone(entry.name):
                    continue
                status = status_of(entry)
                if status is None or self._left.get(entry.name) == _identity(status):
                    continue
                if self._is_complete(entry, status, told=entry.name in closed):
                    found.append((status.st_mtime_ns, entry.name))
                else:
                    settling = True
        return [name for _, name in sorted(found)], settling

    def _is_complete(self, entry: os.DirEntry[str], status: os.stat_result, *, told: bool) -> bool:
        """Whether nobody writes to it any more: the kernel said so, or it has been quiet and nobody has it open."""
        if not stat.S_ISREG(status.st_mode):
            return True  # whatever it is, it will be refused
        # A time that is far ahead says nothing; one that is a little ahead is another clock's now.
        quiet = abs(self.clock.wall_ms() / 1000 - status.st_mtime)
        if not told and quiet < self.settle:
            return False
        return not being_written(entry.path)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Which entry has this name now; none if it has gone."""
        try:
            return _identity(os.lstat(os.path.join(self.paths.spool, name)))
        except FileNotFoundError:
            return None

    def leave(self, name: str, identity: tuple[int, int]) -> None:
        """Leave an entry that cannot be taken where it is, until somebody changes it."""
        self._left[name] = identity

    def close(self) -> None:
        """Stop watching."""
        if self.inotify is not None:
            self.inotify.close()


def status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """What is known of an entry; nothing if it has gone meanwhile."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    """What changes when an entry is replaced, or given other rights."""
    return status.st_ino, status.st_ctime_ns
