"""Choosing who is next, and the life of an attempt from claim to end."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.queue.decide import Candidate, Head, Lane, Pick, Snapshot
from fairlead.queue.errors import StaleTokenError
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_json, as_lock, as_task
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Ended, Holder, Lock, Terms
from fairlead.queue.task import Outcome, Task


class Claiming(StorePart):
    """snapshot, claim, unclaim, started, finish, active."""

    # ------------------------------------------------------------------ choosing

    def snapshot(
        self, *, now: int, free_slots: int, ageing: float, serialized: bool, exclude: Iterable[str]
    ) -> Snapshot:
        """What a decision needs: the users who stand first, but for the excluded ones."""
        with self.db.reading():
            scopes = {row[0] for row in self.db.rows(sql.PAUSES)}
            out = set(exclude) | {scope.removeprefix("user:") for scope in scopes if scope.startswith("user:")}
            paused = json.dumps([s.removeprefix("project:") for s in scopes if s.startswith("project:")])
            choice = {
                "any_lock": int(not serialized),
                "exclude": json.dumps(sorted(out)),
                "limit": free_slots,
            }
            return Snapshot(
                now=now,
                free_slots=free_slots,
                ageing=ageing,
                paused="all" in scopes,
                candidates=tuple(self._express(choice) + self._regular(choice, paused)),
            )

    def _regular(self, choice: dict[str, Any], paused: str) -> list[Candidate]:
        return [
            Candidate(user=user, standing=standing, lanes=lanes)
            for user, standing in self.db.rows(sql.NEXT_USERS, choice)
            if (lanes := self._lanes(user, paused))
        ]

    def _lanes(self, user: str, paused: str) -> tuple[Lane, ...]:
        """The lane that stands first: no other lane of this user can be next."""
        rows = self.db.rows(sql.NEXT_LANES, {"user": user, "paused": paused, "limit": 1})
        return tuple(
            Lane(project=project, standing=standing, heads=self._heads(user, project)) for project, standing in rows
        )

    def _heads(self, user: str, project: str) -> tuple[Head, ...]:
        rows = self.db.rows(sql.HEADS, {"user": user, "project": project})
        return tuple(Head(task_id=row[0], rank=row[1], seq=row[2], since=row[3], express=bool(row[4])) for row in rows)

    def _express(self, choice: dict[str, Any]) -> list[Candidate]:
        """Operators' critical tasks, as candidates of their own: their user may not be among the first."""
        found: dict[str, Candidate] = {}
        for user, project, task_id, rank, seq, since, standing in self.db.rows(sql.EXPRESS, choice):
            head = Head(task_id=task_id, rank=rank, seq=seq, since=since, express=True)
            lane = Lane(project=project, standing=standing, heads=(head,))
            found.setdefault(user, Candidate(user=user, standing=standing, lanes=(lane,)))
        return list(found.values())

    # ------------------------------------------------------------------ claiming

    def claim(self, picks: Sequence[Pick], terms: Terms) -> list[Claim]:
        """Claim tasks and take their locks; picks that somebody else was faster with are left out."""
        with self.db.transaction():
            free = terms.slots - self.db.value(sql.COUNT_ACTIVE)
            claims: list[Claim] = []
            for pick in picks:
                if len(claims) < free and (claim := self._claim_one(pick, terms)):
                    claims.append(claim)
            return claims

    def _claim_one(self, pick: Pick, terms: Terms) -> Claim | None:
        name = f"user:{pick.user}" if terms.serialized else f"task:{pick.task_id}"
        if self.db.value(sql.LOCK_BY_NAME, (name,)):
            return None
        token = self.db.value(sql.NEXT_TOKEN)
        if not self.db.run(sql.CLAIM, {"id": pick.task_id, "token": token, "now": terms.now}):
            return None
        task = self._task(pick.task_id)
        lock = new_lock(name, token, task.id, "run", terms.holder, terms.now, terms.lease)
        take_lock(self, lock)
        attempt = {
            "id": task.id,
            "number": task.attempt,
            "token": token,
            "now": terms.now,
            "host": terms.holder.host,
        }
        self.db.run(sql.ADD_ATTEMPT, attempt)
        self._shift(task.spec.user, task.spec.project, pending=-1, ready=-1, running=1)
        self._log(
            terms.now,
            "claimed",
            task,
            Status.CLAIMED,
            attempt=task.attempt,
            token=token,
            pid=terms.holder.pid,
        )
        return Claim(task=task, lock=lock)

    def unclaim(self, task_id: str, token: int, *, reason: str, now: int, evidence: dict[str, Any]) -> None:
        """Take back a claim whose agent provably never started."""
        with self.db.transaction():
            task = self._task(task_id)
            if not self.db.run(sql.UNCLAIM, {"id": task_id, "token": token, "now": now}):
                raise self._stale(task, token, "requeued", now)
            end = Outcome(status=Status.QUEUED, reason="never_started", error=reason, finished_at=now)
            self._end_attempt(token, end, None)
            self._free(token, reason, now, evidence)
            self._shift(task.spec.user, task.spec.project, pending=1, ready=1, running=-1)
            self._log(now, "requeued", task, Status.QUEUED, reason=reason, evidence=evidence)

    def started(self, task_id: str, token: int, *, started_at: int, holder: Holder) -> None:
        """Record that the agent runs, and who supervises it."""
        with self.db.transaction():
            task = self._task(task_id)
            if not self.db.run(sql.STARTED, {"id": task_id, "token": token, "started_at": started_at}):
                raise self._stale(task, token, "started", started_at)
            self.db.run(sql.ATTEMPT_STARTED, {"token": token, "started_at": started_at})
            where = {"host": holder.host, "boot_id": holder.boot_id, "pid": holder.pid, "start": holder.start}
            self.db.run(sql.LOCK_HOLDER, where | {"token": token})
            self._log(started_at, "started", task, Status.RUNNING, attempt=task.attempt, pid=holder.pid)

    def finish(self, ends: Sequence[Ended], *, now: int) -> list[bool]:
        """Record ends, free the locks, charge the time; False where the token was out of date."""
        with self.db.transaction():
            return [self._finish_one(end, now) for end in ends]

    def _finish_one(self, end: Ended, now: int) -> bool:
        outcome = end.outcome
        task = self._task(end.task_id)
        values = {"id": task.id, "token": end.token, "status": outcome.status, "now": now}
        values |= {
            "started_at": end.started_at,
            "finished_at": outcome.finished_at,
            "outcome": as_json(outcome),
        }
        if not self.db.run(sql.FINISH, values):
            self._log(
                now,
                "refused",
                task,
                task.status,
                what=f"end as {outcome.status}",
                token=end.token,
                current=task.token,
            )
            return False
        self._end_attempt(end.token, outcome, end.started_at)
        self._close_lock(task, end, now)
        self._shift(task.spec.user, task.spec.project, running=-1)
        self._charge(task.spec.user, task.spec.project, outcome.held if outcome.cost is None else outcome.cost, now)
        if task.status is Status.CLAIMED and end.started_at is not None:
            self._log(end.started_at, "started", task, Status.RUNNING, attempt=task.attempt)
        self._log(
            now,
            outcome.status,
            task,
            outcome.status,
            reason=outcome.reason,
            error=outcome.error,
            held=outcome.held,
        )
        return True

    def _end_attempt(self, token: int, outcome: Outcome, started_at: int | None) -> None:
        values = {
            name: getattr(outcome, name) for name in ("finished_at", "status", "reason", "error", "exit_code", "signal")
        }
        self.db.run(sql.ATTEMPT_ENDED, values | {"token": token, "started_at": started_at})

    def _close_lock(self, task: Task, end: Ended, now: int) -> None:
        """The run is over: its lock is free, or kept and shown where nobody can prove that all of it is gone."""
        if end.quarantine:
            lock = self._lock_of(end.token)
            if lock:
                quarantine_lock(self, lock, now, end.outcome.evidence)
            return
        self._free(end.token, f"{task.id} {end.outcome.status}: {end.outcome.reason}", now, end.outcome.evidence)

    def _free(self, token: int, why: str, now: int, evidence: dict[str, Any]) -> None:
        lock = self._lock_of(token)
        if lock:
            free_lock(self, lock, why, now, evidence)

    def _lock_of(self, token: int) -> Lock | None:
        row = self.db.row(sql.LOCK_BY_TOKEN, (token,))
        return as_lock(row) if row else None

    def _stale(self, task: Task, token: int, what: str, now: int) -> StaleTokenError:
        """The refusal to raise; the caller's transaction is undone, so it is noted by `note_refusal`."""
        return StaleTokenError(
            f"task {task.id} is {task.status} with token {task.token}: token {token} "
            f"came too late to have it {what} at {now}."
        )

    def active(self) -> list[Task]:
        """Claimed and running tasks."""
        return [as_task(row) for row in self.db.rows(sql.ACTIVE_TASKS)]


# ---------------------------------------------------------------------- locks, used by both lock parts


def new_lock(name: str, token: int, task_id: str, kind: str, holder: Holder, now: int, lease: float) -> Lock:
    """A lock that is about to be taken."""
    return Lock(
        name=name,
        lock_id=f"{task_id}_{token}",
        token=token,
        task_id=task_id,
        kind=kind,
        state="held",
        acquired_at=now,
        expires_at=now + int(lease * 1000),
        holder=holder,
    )


def take_lock(part: StorePart, lock: Lock) -> None:
    """Write the row of a lock that nobody holds."""
    holder = lock.holder
    values = {name: getattr(lock, name) for name in ("name", "lock_id", "token", "task_id", "kind", "expires_at")}
    values |= {"now": lock.acquired_at, "host": holder.host, "boot_id": holder.boot_id}
    part.db.run(sql.TAKE_LOCK, values | {"pid": holder.pid, "start": holder.start})
    if lock.user is not None:
        part.db.run(sql.LOCK_USER, {"user": lock.user, "locked": 1})


def free_lock(part: StorePart, lock: Lock, why: str, now: int, evidence: dict[str, Any]) -> None:
    """Delete the row of a lock and remember it with its evidence."""
    part.db.run(sql.REMEMBER_LOCK, {"lock_id": lock.lock_id, "now": now, "why": why, "evidence": as_json(evidence)})
    part.db.rows(sql.FREE_LOCK, {"lock_id": lock.lock_id})
    if lock.user is not None:
        part.db.run(sql.LOCK_USER, {"user": lock.user, "locked": 0})


def quarantine_lock(part: StorePart, lock: Lock, now: int, evidence: dict[str, Any]) -> None:
    """Keep a lock and raise the alarm."""
    part.db.run(sql.QUARANTINE_LOCK, {"lock_id": lock.lock_id, "evidence": as_json(evidence)})
    part._log(now, "quarantined", user=lock.user, lock=lock.name, lock_id=lock.lock_id, evidence=evidence)  # noqa: SLF001
