"""Choosing who is next, and the life of an attempt from claim to end."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.queue.decide import Candidate, Head, Lane, Pick, Snapshot
from fairlead.queue.errors import StaleTokenError
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_head, as_json, as_lock, as_task, new_lock
from fairlead.queue.states import FINAL, IllegalTransitionError, Status
from fairlead.queue.store import Claim, Ended, Holder, Lock, Terms
from fairlead.queue.task import NEVER_STARTED, Outcome, Task


class Claiming(StorePart):
    """snapshot, claim, unclaim, started, finish, active."""

    # ------------------------------------------------------------------ choosing

    def snapshot(
        self, *, now: int, free_slots: int, ageing: float, serialized: bool, exclude: Iterable[str]
    ) -> Snapshot:
        """What a decision needs: the users who stand first, but for the excluded ones."""
        choice = {
            "serialized": int(serialized),
            "exclude": json.dumps(sorted(exclude)),
            # Below zero SQLite would set no limit at all.
            "limit": max(0, free_slots),
        }
        with self.db.reading():
            express = self._express(choice)
            regular = [candidate for candidate in self._regular(choice) if candidate.user not in express]
            return Snapshot(
                now=max(now, self.db.value(sql.CLOCK)),
                free_slots=free_slots,
                ageing=ageing,
                paused=any(row[0] == "all" for row in self.db.rows(sql.PAUSES)),
                candidates=(*express.values(), *regular),
            )

    def _regular(self, choice: dict[str, Any]) -> list[Candidate]:
        return [
            Candidate(user=user, standing=standing, lanes=self._lanes(user))
            for user, standing in self.db.rows(sql.NEXT_USERS, choice)
        ]

    def _lanes(self, user: str) -> tuple[Lane, ...]:
        rows = self.db.rows(sql.NEXT_LANE, (user,))
        return tuple(
            Lane(project=project, standing=standing, heads=self._heads(user, project)) for project, standing in rows
        )

    def _heads(self, user: str, project: str) -> tuple[Head, ...]:
        rows = self.db.rows(sql.HEADS, {"user": user, "project": project})
        return tuple(map(as_head, rows))

    def _express(self, choice: dict[str, Any]) -> dict[str, Candidate]:
        """Operators' critical tasks, as candidates of their own: their user may not be among the first."""
        found: dict[str, Candidate] = {}
        for user, project, task_id, rank, place, since, standing in self.db.rows(sql.EXPRESS, choice):
            head = Head(task_id=task_id, rank=rank, place=place, since=since, express=True)
            lane = Lane(project=project, standing=standing, heads=(head,))
            found.setdefault(user, Candidate(user=user, standing=standing, lanes=(lane,)))
        return found

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
        is_free = self.db.value(sql.IS_FREE, {"user": pick.user, "serialized": int(terms.serialized)})
        if not is_free or self.db.value(sql.LOCK_BY_NAME, (name,)):
            return None
        token = self.db.value(sql.NEXT_TOKEN)
        if not self.db.run(sql.CLAIM, {"id": pick.task_id, "user": pick.user, "token": token, "now": terms.now}):
            return None
        task = self._task(pick.task_id)
        lock = new_lock(name, token, task.id, "run", terms.holder, terms.now, terms.lease)
        self._take_lock(lock)
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
        """Take back a claim whose agent provably never started; somebody's wish to cancel it is fulfilled then."""
        with self.db.transaction():
            task = self._task(task_id)
            if self.db.run(sql.UNCLAIM, {"id": task_id, "token": token, "now": now}):
                self._requeue(task, reason, now, evidence)
                return
            self._refuse(task, token, "requeue", now)
        raise _stale(task, token, "queued again")

    def _requeue(self, task: Task, reason: str, now: int, evidence: dict[str, Any]) -> None:
        end = Outcome(status=Status.QUEUED, reason=NEVER_STARTED, error=reason, finished_at=now)
        self._end_attempt(task.token, end, None)
        self._free(task.token, reason, now, evidence)
        self._shift(task.spec.user, task.spec.project, pending=1, ready=1, running=-1)
        self._log(now, "requeued", task, Status.QUEUED, reason=reason, evidence=evidence)
        if task.cancel is not None:
            # The next claim would forget it.
            self._cancel_queued(self._task(task.id), task.cancel, now)

    def started(self, task_id: str, token: int, *, started_at: int, holder: Holder) -> None:
        """Record that the agent runs, and who supervises it."""
        with self.db.transaction():
            task = self._task(task_id)
            if self.db.run(sql.STARTED, {"id": task_id, "token": token, "started_at": started_at}):
                self._note_start(task, started_at, holder)
                return
            self._refuse(task, token, "start", started_at)
        raise _stale(task, token, "started")

    def _note_start(self, task: Task, started_at: int, holder: Holder) -> None:
        self.db.run(sql.ATTEMPT_STARTED, {"token": task.token, "started_at": started_at})
        where = {"host": holder.host, "boot_id": holder.boot_id, "pid": holder.pid, "start": holder.start}
        self.db.run(sql.LOCK_HOLDER, where | {"token": task.token})
        self._log(started_at, "started", task, Status.RUNNING, attempt=task.attempt, pid=holder.pid)

    def finish(self, ends: Sequence[Ended], *, now: int) -> list[bool]:
        """Record ends, free the locks, charge the time; False where the token is out of date or the task unknown."""
        with self.db.transaction():
            return [self._finish_one(end, now) for end in ends]

    def _finish_one(self, end: Ended, now: int) -> bool:
        outcome = end.outcome
        _check_final(end)
        row = self.db.row(sql.TASK, (end.task_id,))
        if row is None:
            # Others in the same batch must not suffer from it.
            self._log(now, "refused", what=f"end as {outcome.status}", task_id=end.task_id, token=end.token)
            return False
        task = as_task(row)
        values = {"id": task.id, "token": end.token, "status": outcome.status, "now": now}
        values |= {
            "started_at": end.started_at,
            "finished_at": outcome.finished_at,
            "outcome": as_json(outcome),
        }
        if not self.db.run(sql.FINISH, values):
            self._refuse(task, end.token, f"end as {outcome.status}", now)
            return False
        self._record_end(task, end, now)
        return True

    def _record_end(self, task: Task, end: Ended, now: int) -> None:
        outcome = end.outcome
        self._end_attempt(end.token, outcome, end.started_at)
        self._close_lock(task, end, now)
        self._shift(task.spec.user, task.spec.project, running=-1)
        self._charge(task.spec.user, task.spec.project, self._price(outcome), outcome.held, now)
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

    def _price(self, outcome: Outcome) -> float:
        """What a run is charged: the cost it reports, where the settings say so, else the seconds it held its lock."""
        return outcome.cost if self.share.charge_cost and outcome.cost is not None else outcome.held

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
                self._quarantine_lock(lock, now, end.outcome.evidence)
            return
        self._free(end.token, f"{task.id} {end.outcome.status}: {end.outcome.reason}", now, end.outcome.evidence)

    def _free(self, token: int, why: str, now: int, evidence: dict[str, Any]) -> None:
        lock = self._lock_of(token)
        if lock:
            self._free_lock(lock, why, now, evidence)

    def _lock_of(self, token: int) -> Lock | None:
        row = self.db.row(sql.LOCK_BY_TOKEN, (token,))
        return as_lock(row) if row else None

    def _refuse(self, task: Task, token: int, what: str, now: int) -> None:
        """Write down that somebody came too late; the guarded write has changed nothing, so this alone is committed."""
        self._log(now, "refused", task, task.status, what=what, token=token, current=task.token)

    def count_active(self) -> int:
        """How many tasks are claimed or running: the slots in use."""
        count: int = self.db.value(sql.COUNT_ACTIVE)
        return count

    def active(self) -> list[Task]:
        """Claimed and running tasks."""
        return [as_task(row) for row in self.db.rows(sql.ACTIVE_TASKS)]


def _check_final(end: Ended) -> None:
    if end.outcome.status not in FINAL:
        raise IllegalTransitionError(f"task {end.task_id} cannot end as {end.outcome.status}: that is no end.")


def _stale(task: Task, token: int, what: str) -> StaleTokenError:
    return StaleTokenError(
        f"task {task.id} is {task.status} with token {task.token}: token {token} came too late to have it {what}."
    )
