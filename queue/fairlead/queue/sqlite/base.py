"""What every part of the store shares: the connection, the accounts, the event log, rows as records."""

from typing import Any

import msgspec

from fairlead.queue import standing
from fairlead.queue.decide import Head
from fairlead.queue.errors import NoSuchTaskError, NothingChangedError
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.connection import Connection, Row
from fairlead.queue.states import Status, check_transition
from fairlead.queue.store import Holder, Lock, Share
from fairlead.queue.task import Outcome, Spec, Task

_decode_spec = msgspec.json.Decoder(Spec).decode
_decode_outcome = msgspec.json.Decoder(Outcome).decode


def as_json(value: object) -> str:
    """JSON for a column."""
    return msgspec.json.encode(value).decode()


def as_task(row: Row) -> Task:
    """A row of TASK_COLUMNS as a record."""
    return Task(
        id=row[0],
        seq=row[1],
        spec=_decode_spec(row[2]),
        status=Status(row[3]),
        version=row[4],
        created_at=row[5],
        updated_at=row[6],
        started_at=row[7],
        finished_at=row[8],
        attempt=row[9],
        token=row[10],
        outcome=_decode_outcome(row[11]) if row[11] else None,
        cancel=row[12],
        archived=bool(row[13]),
    )


def as_head(row: Row) -> Head:
    """A row of HEADS as a record."""
    return Head(task_id=row[0], rank=row[1], place=row[2], since=row[3], express=bool(row[4]))


def as_lock(row: Row) -> Lock:
    """A row of LOCK_COLUMNS as a record."""
    return Lock(
        name=row[0],
        lock_id=row[1],
        token=row[2],
        task_id=row[3],
        kind=row[4],
        state=row[5],
        acquired_at=row[6],
        expires_at=row[7],
        holder=Holder(host=row[8], boot_id=row[9], pid=row[10], start=row[11]),
        evidence=msgspec.json.decode(row[12]),
    )


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


def is_due(spec: Spec, now: int) -> bool:
    """Whether a task's time has come."""
    return spec.run_at is None or spec.run_at <= now


def since(spec: Spec, created_at: int, now: int, clock: int) -> int:
    """From when on a task can run: wall time while it is to come, else the accounts' clock.

    The clock runs ahead where the wall clock was set back. Tasks that came before and after that are compared by
    how long they have waited, so they have to be measured by the same clock.
    """
    if not is_due(spec, now):
        return spec.run_at or 0
    return min(max(created_at, spec.run_at or 0) + clock - now, clock)


class StorePart:
    """The connection and the accounts that the parts of the store work on."""

    def __init__(self, db: Connection, share: Share) -> None:
        self.db = db
        self.share = share

    # ------------------------------------------------------------------ tasks and events

    def _task(self, task_id: str) -> Task:
        row = self.db.row(sql.TASK, (task_id,))
        if row is None:
            raise NoSuchTaskError(f"there is no task {task_id}; `fairlead list --all` shows the known ones.")
        return as_task(row)

    def _write(self, statement: str, values: Row | dict[str, Any]) -> None:
        """Change one row that was looked at in this transaction; the transaction is undone if it is not as it was."""
        if self.db.run(statement, values) != 1:
            raise NothingChangedError

    def _log(
        self,
        now: int,
        event: str,
        task: Task | None = None,
        status: Status | None = None,
        user: str | None = None,
        **detail: Any,  # noqa: ANN401 - whatever tells the story
    ) -> None:
        owner = task.spec.user if task else user
        self.db.run(sql.ADD_EVENT, (now, task.id if task else None, owner, event, status, as_json(detail)))

    # ------------------------------------------------------------------ accounts

    def _enter(self, user: str, project: str, now: int, *, pending: int, ready: int) -> None:
        """Tasks begin to wait or become due: open the accounts, lift who did not take part before, count."""
        own = self.db.row(sql.USER_ACCOUNT, (user,))
        if own is None or not own[2]:
            self._lift_user(user, own, now)
        lane = self.db.row(sql.LANE_ACCOUNT, (user, project))
        if lane is None or not lane[2]:
            self._lift_lane(user, project, lane, now)
        self._shift(user, project, pending=pending, ready=ready)

    def _lift_user(self, user: str, account: Row | None, now: int) -> None:
        lifted = self._lifted(account, self.db.row(sql.LEVEL_OF_USERS, {"user": user}), now)
        weight = account[1] if account else self.share.weight(user)
        self.db.run(sql.PUT_USER, {"user": user, "standing": lifted, "weight": weight})

    def _lift_lane(self, user: str, project: str, account: Row | None, now: int) -> None:
        lifted = self._lifted(account, self.db.row(sql.LEVEL_OF_LANES, {"user": user, "project": project}), now)
        weight = account[1] if account else self.share.project_weight(project)
        self.db.run(sql.PUT_LANE, {"user": user, "project": project, "standing": lifted, "weight": weight})

    def _lifted(self, account: Row | None, others: Row | None, now: int) -> float:
        """Where a newcomer begins: his debts stay, credit does not."""
        level = standing.level(*others) if others else None
        return standing.lift(account[0] if account else None, level, self._clock(now) / 1000, self._half_life())

    def _come_back(self, user: str, now: int) -> None:
        """What kept a user out has ended: one who waits takes part again, and nobody saves up meanwhile."""
        account = self.db.row(sql.USER_ACCOUNT, (user,))
        if account is not None and account[2]:
            self._lift_user(user, account, now)

    def _clock(self, now: int) -> int:
        """Milliseconds for the accounts: they never go back, whatever the wall clock does and whoever restarts."""
        latest: int = self.db.value(sql.ADVANCE_CLOCK, (now,))
        return latest

    def _half_life(self) -> float:
        """The half-life that the stored standings are written with: a process may have read newer settings."""
        return float(self.db.value(sql.HALF_LIFE, (str(self.share.half_life),)))

    def _shift(self, user: str, project: str, *, pending: int = 0, ready: int = 0, running: int = 0) -> None:
        values = {"user": user, "project": project, "pending": pending, "ready": ready, "running": running}
        self.db.run(sql.SHIFT_USER, {key: values[key] for key in ("user", "pending", "ready", "running")})
        self.db.run(sql.SHIFT_LANE, values)

    def _charge(self, user: str, project: str, amount: float, over: float, now: int) -> None:
        """Add what a run has used, in so many seconds, to the accounts of its user and project."""
        t, half_life = self._clock(now) / 1000, self._half_life()
        own = self.db.row(sql.USER_ACCOUNT, (user,))
        lane = self.db.row(sql.LANE_ACCOUNT, (user, project))
        if own is None or lane is None:
            raise AssertionError(f"no account for {user}/{project}")
        charged = standing.charge(own[0], amount, own[1], t, half_life, over=over)
        self.db.run(sql.PUT_USER, {"user": user, "standing": charged, "weight": own[1]})
        charged = standing.charge(lane[0], amount, lane[1], t, half_life, over=over)
        self.db.run(sql.PUT_LANE, {"user": user, "project": project, "standing": charged, "weight": lane[1]})

    # ------------------------------------------------------------------ locks

    def _take_lock(self, lock: Lock) -> None:
        """Write the row of a lock that nobody holds."""
        holder = lock.holder
        values = {name: getattr(lock, name) for name in ("name", "lock_id", "token", "task_id", "kind", "expires_at")}
        values |= {"now": lock.acquired_at, "host": holder.host, "boot_id": holder.boot_id}
        self.db.run(sql.TAKE_LOCK, values | {"pid": holder.pid, "start": holder.start})

    def _free_lock(self, lock: Lock, why: str, now: int, evidence: dict[str, Any]) -> None:
        """Delete the row of a lock and remember it with its evidence."""
        self.db.run(sql.REMEMBER_LOCK, {"lock_id": lock.lock_id, "now": now, "why": why, "evidence": as_json(evidence)})
        self.db.run(sql.FREE_LOCK, {"lock_id": lock.lock_id})

    def _quarantine_lock(self, lock: Lock, now: int, evidence: dict[str, Any]) -> None:
        """Keep a lock and raise the alarm."""
        self.db.run(sql.QUARANTINE_LOCK, {"lock_id": lock.lock_id, "evidence": as_json(evidence)})
        self._log(now, "quarantined", user=lock.user, lock=lock.name, lock_id=lock.lock_id, evidence=evidence)

    # ------------------------------------------------------------------ ends without a run

    def _cancel_queued(self, task: Task, by: str, now: int) -> None:
        check_transition(task.id, task.status, Status.CANCELLED)
        outcome = Outcome(
            status=Status.CANCELLED,
            reason="cancelled",
            error=f"cancelled by {by} before it started",
            finished_at=now,
        )
        [(_, due, _)] = self.db.rows(sql.DUE_OF_TASK, (task.id,))
        self._write(sql.CANCEL_QUEUED, {"id": task.id, "outcome": as_json(outcome), "now": now})
        self._shift(task.spec.user, task.spec.project, pending=-1, ready=-due)
        self._log(now, "cancelled", task, Status.CANCELLED, by=by)
