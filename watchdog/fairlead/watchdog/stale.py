"""Locks that nobody answers for any more: freed on evidence only, kept and shown where there is none.

Whoever touches a lock file holds its row: so the row is taken first, here as everywhere.
"""

import os
import time
from typing import Any

from fairlead.base.identity import boot_id, host, start_of
from fairlead.conductor import tree
from fairlead.conductor.orders import MARKER
from fairlead.queue.lockfiles import LockFile, Metadata
from fairlead.queue.locks import this_holder
from fairlead.queue.office import Office
from fairlead.queue.store import Lock
from fairlead.watchdog.open_files import open_by

#: The task id of locks that are held for a moment to clear a file away.
SWEEPER = "watchdog"
_USER_MARKER = "FAIRLEAD_USER"


class StaleLocks:
    """Looks for locks whose holder is gone: rows of commands, and files without a row."""

    def __init__(self, instance: Office) -> None:
        self.instance = instance
        self.store = instance.store
        self.locks = instance.locks
        self.boot_id = boot_id()
        self.host = host()

    def look(self) -> bool:
        """Free what is proven to be nobody's; True if a user became free."""
        held = self.store.locks()
        freed = [self._release_if_dead(lock) for lock in held if lock.kind == "hold"]
        rows = {lock.user: lock for lock in held}
        for user, lock in rows.items():
            if user is not None and lock.task_id != SWEEPER:
                self._mend_mirror(user, lock)
        freed += [self._look_at_file(user) for user in self.locks.files.users() - set(rows)]
        return any(freed)

    # ------------------------------------------------------------------ rows

    def _release_if_dead(self, lock: Lock) -> bool:
        """A command under the lock holds it no longer once it is gone, with all that it started."""
        holder = lock.holder
        if holder.boot_id == self.boot_id and self._lives(lock):
            return False
        evidence = {"proof": "its process and what it started are gone", "pid": holder.pid, "boot_id": holder.boot_id}
        self.locks.files.drop(lock.user, lock.lock_id)
        freed = self.store.release(
            lock.lock_id, why="its holder died", now=self.instance.clock.wall_ms(), evidence=evidence
        )
        self.instance.log.warning("lock_freed", lock=lock.name, lock_id=lock.lock_id, evidence=evidence)
        return freed

    def _lives(self, lock: Lock) -> bool:
        if lock.task_id == SWEEPER and lock.holder == this_holder():
            return False  # we hold none between two looks: the last one failed before it could let go
        return not lock.holder.has_ended or bool(tree.marked(MARKER, lock.lock_id))

    def _mend_mirror(self, user: str, lock: Lock) -> None:
        """The row is the truth: a mirror of it that was removed or spoilt is made anew, the spoilt one kept aside."""
        found = self.locks.files.read(user)
        if found is not None and found.lock_id == lock.lock_id:
            return
        current = self.store.lock(lock.name)
        if current is None or current.lock_id != lock.lock_id:
            return  # it was freed while we looked
        if found is not None and found.kind is Metadata.CORRUPT:
            aside = self.locks.files.set_aside(user)
            self.instance.log.warning("lock_file_mended", user=user, aside=aside)
        self.locks.show(lock)

    # ------------------------------------------------------------------ files without a row

    def _look_at_file(self, user: str) -> bool:
        found = self.locks.files.read(user)
        evidence = self._proof_of_death(found) if found else None
        return evidence is not None and self._clear_away(user, evidence)

    def _proof_of_death(self, found: LockFile) -> dict[str, Any] | None:
        """What proves that a file is nobody's; None if it must be honoured."""
        if self.locks.is_left_over(found):
            return {"proof": "a mirror of a lock that was released", "lock_id": found.lock_id}
        if found.kind is Metadata.GOOD:
            return self._dead_foreigner(found)
        if found.kind is Metadata.CORRUPT and all(map(self._is_old, _both_files(found))):
            return self._unreadable(found)
        return None

    def _dead_foreigner(self, found: LockFile) -> dict[str, Any] | None:
        """A holder that is gone. It may be ours, forgotten by a rebuilt store: what that left bears the lock's id."""
        proof = self._gone(found.data)
        return None if proof is None or tree.marked(MARKER, found.lock_id) else proof

    def _gone(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """A foreign holder is proven dead only by this machine's own processes: age proves nothing."""
        pid = data.get("acquired_by_pid")
        is_here = data.get("host") == self.host or data.get("boot_id") == self.boot_id
        if not is_here or not isinstance(pid, int):
            return None
        if data.get("boot_id", self.boot_id) != self.boot_id:
            return {"proof": "another boot", "boot_id": data["boot_id"]}
        start = start_of(pid)
        if start is None or start != data.get("pid_start", start):
            return {"proof": "its process is gone", "pid": pid}
        return None

    def _unreadable(self, found: LockFile) -> dict[str, Any] | None:
        """Metadata that cannot be read: free if no run of that user is alive and nobody has the file open."""
        alive = tree.marked(_USER_MARKER, found.user)
        users = [pid for path in _both_files(found) for pid in open_by(path)]
        if alive or users:
            processes = [list(one) for one in alive]
            self.instance.log.warning(
                "lock_file_unreadable", user=found.user, kept="somebody lives", alive=processes, open_by=users
            )
            return None
        return {"proof": "unreadable; no run of the user is alive and nobody has the file open"}

    def _is_old(self, path: str) -> bool:
        """Whether it has been like this for a while, or is not there: its maker may still be writing it."""
        try:
            return time.time() - os.lstat(path).st_mtime > self.instance.config.intervals.settle
        except FileNotFoundError:
            return True

    def _clear_away(self, user: str, evidence: dict[str, Any]) -> bool:
        """Take the row, look again, put the file aside, give the row back."""
        clock = self.instance.clock
        lock = self.store.acquire(
            f"user:{user}", task_id=SWEEPER, holder=this_holder(), now=clock.wall_ms(), lease=self.instance.lease
        )
        if lock is None:
            return False
        found = self.locks.files.read(user)
        proven = self._proof_of_death(found) if found else None
        if proven is not None:
            evidence = evidence | {"aside": self.locks.files.set_aside(user)}
            self.instance.log.warning("lock_freed", lock=lock.name, evidence=evidence)
        self.store.release(lock.lock_id, why="cleared away", now=clock.wall_ms(), evidence=evidence)
        return proven is not None


def _both_files(found: LockFile) -> tuple[str, str]:
    """The lock file and the metadata beside it, either of which its maker may be writing."""
    return found.path, found.path.removesuffix(".lock") + ".json"
