"""Locks that are not an attempt's, leases, and pauses."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_lock, new_lock
from fairlead.queue.sqlite.connection import Row
from fairlead.queue.store import Holder, Lock, PastLock, Pause


class Locking(StorePart):
    """acquire, release, renew, locks, lock, past_lock, past_locks, pause, resume, come_back, pauses."""

    def acquire(self, name: str, *, task_id: str, holder: Holder, now: int, lease: float) -> Lock | None:
        """Take a lock for a person's command; None while somebody holds it, or a task of that user runs."""
        with self.db.transaction():
            if self._is_taken(name):
                return None
            token = self.db.value(sql.NEXT_TOKEN)
            lock = new_lock(name, token, task_id, "hold", holder, now, lease)
            self._take_lock(lock)
            self._log(now, "lock_taken", user=lock.user, lock=name, lock_id=lock.lock_id, pid=holder.pid)
            return lock

    def _is_taken(self, name: str) -> bool:
        """Whether it is held, or guards a user of whom something runs without it (serialization is, or was, off)."""
        user = {"user": name.removeprefix("user:"), "serialized": 1} if name.startswith("user:") else None
        runs = user is not None and self.db.value(sql.IS_FREE, user) == 0
        return runs or self.db.value(sql.LOCK_BY_NAME, (name,)) is not None

    def release(self, lock_id: str, *, why: str, now: int, evidence: dict[str, Any]) -> bool:
        """Free a lock; False if that lock is not held any more."""
        with self.db.transaction():
            row = self.db.row(sql.LOCK_BY_ID, (lock_id,))
            if row is None:
                self._log(now, "refused", what="release", lock_id=lock_id, why=why)
                return False
            lock = as_lock(row)
            lane = self.db.row(sql.LANE_KEPT_BY_LOCK, {"name": lock.name})
            self._free_lock(lock, why, now, evidence)
            if lock.user is not None:
                self._come_back(lock.user, now)
            elif lane is not None:
                self._lane_comes_back(lane[0], lane[1], now)
            self._log(
                now,
                "lock_released",
                user=lock.user,
                lock=lock.name,
                lock_id=lock_id,
                why=why,
                evidence=evidence,
            )
            return True

    def renew(self, lock_ids: Sequence[str], *, now: int, lease: float) -> None:
        """Extend leases that heartbeats have renewed; for a lock that is not held any more it is refused and logged."""
        with self.db.transaction():
            for lock_id in lock_ids:
                if not self.db.run(sql.RENEW_LOCK, {"lock_id": lock_id, "expires_at": now + int(lease * 1000)}):
                    self._log(now, "refused", what="renew", lock_id=lock_id)

    def locks(self) -> list[Lock]:
        """Every lock that is held."""
        return [as_lock(row) for row in self.db.rows(sql.LOCKS)]

    def lock(self, name: str) -> Lock | None:
        """The lock of that name, if it is held."""
        row = self.db.row(sql.LOCK_BY_NAME, (name,))
        return as_lock(row) if row else None

    def past_lock(self, lock_id: str) -> PastLock | None:
        """A released lock, if it is remembered."""
        row = self.db.row(sql.PAST_LOCK, (lock_id,))
        return _as_past_lock(row) if row else None

    def past_locks(self, limit: int) -> list[PastLock]:
        """The last released locks, newest first."""
        return [_as_past_lock(row) for row in self.db.rows(sql.PAST_LOCKS, (limit,))]

    def pause(self, scope: str, *, by: str, reason: str, now: int) -> None:
        """Start nothing more in that scope."""
        with self.db.transaction():
            self.db.run(sql.PAUSE, {"scope": scope, "by": by, "reason": reason, "now": now})
            self._log(now, "paused", scope=scope, by=by, reason=reason)

    def resume(self, scope: str, *, by: str, now: int) -> bool:
        """Go on; False if it was not paused."""
        with self.db.transaction():
            if not self.db.run(sql.RESUME, (scope,)):
                return False
            self._all_come_back(scope, now)
            self._log(now, "resumed", scope=scope, by=by)
            return True

    def _all_come_back(self, scope: str, now: int) -> None:
        """Whoever waited behind this pause takes part again; a pause of all has left everybody where he stood."""
        kind, _, name = scope.partition(":")
        if kind == "user":
            self._come_back(name, now)
        elif kind == "project":
            for (user,) in self.db.rows(sql.WAITING_IN_PROJECT, (name,)):
                self._lane_comes_back(user, name, now)

    def _lane_comes_back(self, user: str, project: str, now: int) -> None:
        """A project takes part again; its user too, unless another project of his has done so all the time."""
        others = self.db.row(sql.LEVEL_OF_LANES, {"user": user, "project": project})
        self._lift_lane(user, project, self.db.row(sql.LANE_ACCOUNT, (user, project)), now)
        if others == (None, None):
            self._come_back(user, now)

    def come_back(self, user: str, now: int) -> None:
        """Let a user take part again whom something outside the store had kept out: he has saved nothing up."""
        with self.db.transaction():
            self._come_back(user, now)

    def pauses(self) -> list[Pause]:
        """What is paused."""
        return [Pause(scope=row[0], at=row[1], by=row[2], reason=row[3]) for row in self.db.rows(sql.PAUSES)]


def _as_past_lock(row: Row) -> PastLock:
    *fields, evidence = row
    names = PastLock.__struct_fields__
    return PastLock(**dict(zip(names, fields, strict=False)), evidence=msgspec.json.decode(evidence))
