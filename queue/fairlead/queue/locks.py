"""Locks as a person or another tool uses them, and how a row and its visible file are kept in step.

Order: the row is taken first, then the file is shown; the file goes first, then the row. So whoever holds the row
is the only one who touches the file, and a file without a row is a foreign one or a left-over of a crash.
"""

import os
import select
import threading
from functools import cache
from typing import Any

from fairlead.base import bell
from fairlead.base.clock import Clock
from fairlead.base.identity import boot_id, host, this_process
from fairlead.queue.lockfiles import LockFile, LockFiles
from fairlead.queue.store import Holder, Lock, Store
from fairlead.queue.task import Event

#: While waiting for a lock, look again at least this often: a ring may be lost.
LOOK_AGAIN = 1.0
_NOT_SHOWN = {"proof": "nothing was done under it: somebody else's file was there, or no room for one"}


def this_holder() -> Holder:
    """The calling process as a holder of locks."""
    return _holder(os.getpid())


@cache
def _holder(_pid: int) -> Holder:
    """Asked for with every claim, and the same for as long as the process lives."""
    process = this_process()
    return Holder(host=host(), boot_id=boot_id(), pid=process.pid, start=process.start)


class LockManager:
    """Takes and frees user locks: the row in the store, then its visible files."""

    def __init__(self, store: Store, files: LockFiles, clock: Clock, bells: str, lease: float) -> None:
        self.store = store
        self.files = files
        self.clock = clock
        self.bells = bells
        self.lease = lease

    def acquire(self, user: str, task_id: str, timeout: float = 30.0) -> Lock | None:
        """Take a user's lock, waiting at most `timeout` seconds (0: try once); None if it was not free in time."""
        deadline = self.clock.boot() + timeout
        if (lock := self.try_once(user, task_id, this_holder())) or timeout <= 0:
            return lock
        # Each waiting thread hears a bell of its own.
        listener = bell.Listener(self.bells, f"lock-{os.getpid()}-{threading.get_native_id()}")
        try:
            while (rest := deadline - self.clock.boot()) > 0:
                if lock := self.try_once(user, task_id, this_holder()):
                    return lock
                select.select([listener], [], [], min(rest, LOOK_AGAIN))
                listener.take()
        finally:
            listener.close()
        return None

    def try_once(self, user: str, task_id: str, holder: Holder) -> Lock | None:
        """Take a user's lock for a process, this one or another; None if it is not free."""
        if self.is_locked(user):
            return None  # looking costs nothing; taking a row and giving it back would be two commits
        now = self.clock.wall_ms()
        lock = self.store.acquire(f"user:{user}", task_id=task_id, holder=holder, now=now, lease=self.lease)
        if lock is None:
            return None
        shown = False
        try:
            shown = self.show(lock)
        finally:
            if not shown:
                self.store.release(lock.lock_id, why="its file could not be put there", now=now, evidence=_NOT_SHOWN)
        return lock if shown else None

    def release(
        self, user: str, lock_id: str, why: str = "released by its holder", evidence: dict[str, Any] | None = None
    ) -> bool:
        """Free a lock that this holder took; False, and a note of it, if this user's lock is another one or free."""
        now = self.clock.wall_ms()
        lock = self.store.lock(f"user:{user}")
        if lock is None or lock.lock_id != lock_id:
            self.store.note(Event(at=now, event="refused", user=user, detail={"what": "release", "lock_id": lock_id}))
            return False
        return self.free(lock, why, evidence or {})

    def free(self, lock: Lock, why: str, evidence: dict[str, Any]) -> bool:
        """Free a lock, a user's or a single task's, and tell everybody; False if it is free already."""
        self.files.drop(lock.user, lock.lock_id)
        freed = self.store.release(lock.lock_id, why=why, now=self.clock.wall_ms(), evidence=evidence)
        bell.ring_all(self.bells, "released")
        return freed

    def is_locked(self, user: str) -> bool:
        """Whether a user's tasks cannot start: by a lock of ours or by somebody's file."""
        return self.store.lock(f"user:{user}") is not None or self._is_foreign(user)

    def list(self) -> list[Lock]:
        """Every lock that is held."""
        return self.store.locks()

    def show(self, lock: Lock) -> bool:
        """Make a lock visible; False if a foreign file is in the way. A left-over of our own is replaced."""
        if lock.user is None:
            return True
        # Looked at first: where nothing has to be written, a full disk is in nobody's way.
        found = self.files.read(lock.user)
        if found is not None and found.lock_id != lock.lock_id and self.is_left_over(found):
            self.files.drop(found.user, found.lock_id)
            found = None
        if found is None and self.files.put(lock):
            return True
        found = found or self.files.read(lock.user)  # whoever was faster may have shown this very lock
        return found is not None and found.lock_id == lock.lock_id

    def is_left_over(self, found: LockFile) -> bool:
        """Whether a file mirrors a lock that was released: its holder died before it could remove the file."""
        ours = bool(found.lock_id) and not found.is_somebodys
        return ours and self.store.past_lock(found.lock_id) is not None

    def foreign(self) -> set[str]:
        """The users whose lock file is not one of ours: nobody starts their tasks."""
        shown = self.files.users()
        if not shown:
            return set()
        ours = {lock.user for lock in self.store.locks()}
        return {user for user in shown - ours if self._is_foreign(user)}

    def _is_foreign(self, user: str) -> bool:
        """Whether a file without a row is somebody else's. A left-over of ours goes when the row is taken next."""
        found = self.files.read(user)
        return found is not None and not self.is_left_over(found)
