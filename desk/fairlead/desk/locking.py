"""Locks that people hold, and those that stayed."""

from fairlead.base.errors import RefusedError
from fairlead.base.ids import check_id, check_name
from fairlead.desk.parts import Data, DeskPart
from fairlead.desk.views import lock_view
from fairlead.queue.locks import this_holder
from fairlead.queue.rights import ForbiddenError, check_force, check_lock
from fairlead.queue.states import ACTIVE
from fairlead.queue.store import Holder, Lock
from fairlead.watchdog.stale import StaleLocks


class Locking(DeskPart):
    """try_lock, let_go, free_lock."""

    def try_lock(self, user: str, holder: Holder) -> Data | None:
        """Take a user's lock for a process, which holds it until it says so or has ended; None if it is not free."""
        name = f"user:{check_name(user, 'user')}"
        check_lock(self.caller, name, "hold")
        lock = self.office.locks.try_once(user, f"hold-{holder.pid}", holder)
        return lock_view(lock, whole=True) if lock else None

    def let_go(self, user: str, lock_id: str, holder: Holder, exit_code: int | None = None) -> Data:
        """Free a lock that this very process holds."""
        lock = self.office.store.lock(f"user:{check_name(user, 'user')}")
        if lock is not None and lock.lock_id == lock_id and not _is_held_by(lock, holder):
            raise ForbiddenError(f"the lock of {user} is held by another process: only that one can let go of it.")
        evidence: Data = {"proof": "its holder let go of it", "pid": holder.pid}
        evidence |= {} if exit_code is None else {"exit_code": exit_code}
        return {"released": self.office.locks.release(user, lock_id, evidence=evidence)}

    def free_lock(self, whose: str, *, force: bool = False) -> Data:
        """Free a lock whose holder is gone; by force, one that is quarantined or foreign, on the caller's word."""
        name = _lock_name(whose)
        check_lock(self.caller, name, "release")
        if force:
            check_force(self.caller)
        return {"released": name, "evidence": self._free(name, force=force)}

    def _free(self, name: str, *, force: bool) -> Data:
        # What is proven dead is freed here; what is left of this host's commands is alive.
        StaleLocks(self.office).look()
        lock = self.office.store.lock(name)
        if lock is not None:
            self._refuse_living(lock)
            return self._free_row(lock, force=force)
        kind, _, user = name.partition(":")
        if kind == "user" and self.office.locks.files.read(user) is not None:
            return self._free_file(user, force=force)
        return {"proof": "nobody holds it"}

    def _refuse_living(self, lock: Lock) -> None:
        if lock.kind == "run" and lock.state == "held" and self.office.store.get(lock.task_id).status in ACTIVE:
            raise RefusedError(
                f"task {lock.task_id} runs under it: `fairlead cancel {lock.task_id}` ends it and frees it."
            )
        if lock.kind == "hold" and lock.state == "held":
            raise RefusedError(
                f"a command that was started under it is alive (pid {lock.holder.pid}, or what it started): "
                "end it, and the lock is free."
            )

    def _free_row(self, lock: Lock, *, force: bool) -> Data:
        holder, by = lock.holder, self.caller.name
        if not force:
            raise RefusedError(
                f"nobody could prove that the holder of {lock.name} (pid {holder.pid} on {holder.host}) is gone: "
                "make sure, then say --force."
            )
        evidence: Data = {"forced_by": by, "was": lock.state, "pid": holder.pid}
        self.office.locks.free(lock, f"forced by {by}", evidence)
        return evidence

    def _free_file(self, user: str, *, force: bool) -> Data:
        office, by = self.office, self.caller.name
        path = office.locks.files.path(user)
        if not force:
            raise RefusedError(f"{path} is not Fairlead's: whoever made it has to remove it; --force puts it aside.")
        now = office.clock.wall_ms()
        lock = office.store.acquire(f"user:{user}", task_id="forced", holder=this_holder(), now=now, lease=office.lease)
        if lock is None:
            raise RefusedError(f"the lock of {user} has just been taken; look at `fairlead locks`.")
        evidence: Data = {"forced_by": by, "aside": office.locks.files.set_aside(user)}
        office.locks.release(user, lock.lock_id, why=f"forced by {by}", evidence=evidence)
        return evidence


def _is_held_by(lock: Lock, holder: Holder) -> bool:
    return lock.kind == "hold" and lock.holder == holder


def _lock_name(whose: str) -> str:
    """A lock's full name; a plain word is a user's."""
    if whose.startswith("task:"):
        return f"task:{check_id(whose.removeprefix('task:'))}"
    return f"user:{check_name(whose.removeprefix('user:'), 'user')}"
