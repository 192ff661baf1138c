"""What every part of the store shares: the connection, the accounts, the event log, rows as records."""

from typing import Any

import msgspec

from fairlead.queue import standing
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.connection import Connection, Row
from fairlead.queue.states import Status
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


class StorePart:
    """The connection and the accounts that the parts of the store work on."""

    def __init__(self, db: Connection, share: Share) -> None:
        self.db = db
        self.share = share
        self._latest = 0.0

    # ------------------------------------------------------------------ tasks and events

    def _task(self, task_id: str) -> Task:
        row = self.db.row(sql.TASK, (task_id,))
        if row is None:
            raise NoSuchTaskError(f"there is no task {task_id}; `fairlead list --all` shows the known ones.")
        return as_task(row)

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
        """Tasks begin to wait: open the accounts, lift a newcomer, count."""
        own = self.db.row(sql.USER_ACCOUNT, (user,))
        if own is None or own[2] == 0:
            lifted = self._lifted(own, self.db.row(sql.LEVEL_OF_USERS), now)
            self.db.run(sql.PUT_USER, {"user": user, "standing": lifted, "weight": self._weight(user)})
        lane = self.db.row(sql.LANE_ACCOUNT, (user, project))
        if lane is None or lane[2] == 0:
            lifted = self._lifted(lane, self.db.row(sql.LEVEL_OF_LANES, {"user": user}), now)
            weight = self._project_weight(project)
            self.db.run(sql.PUT_LANE, {"user": user, "project": project, "standing": lifted, "weight": weight})
        self._shift(user, project, pending=pending, ready=ready)

    def _lifted(self, account: Row | None, others: Row | None, now: int) -> float:
        """Where a newcomer begins: his debts stay, credit does not."""
        level = standing.level(*others) if others else None
        return standing.lift(account[0] if account else None, level, self._time(now), self.share.half_life)

    def _time(self, now: int) -> float:
        """Seconds for the accounts: they never go back, whatever the wall clock does."""
        self._latest = max(self._latest, now / 1000)
        return self._latest

    def _shift(self, user: str, project: str, *, pending: int = 0, ready: int = 0, running: int = 0) -> None:
        values = {"user": user, "project": project, "pending": pending, "ready": ready, "running": running}
        self.db.run(sql.SHIFT_USER, {key: values[key] for key in ("user", "pending", "ready", "running")})
        self.db.run(sql.SHIFT_LANE, values)

    def _charge(self, user: str, project: str, amount: float, now: int) -> None:
        """Add what a run has used to the accounts of its user and project."""
        t = self._time(now)
        own = self.db.row(sql.USER_ACCOUNT, (user,))
        lane = self.db.row(sql.LANE_ACCOUNT, (user, project))
        if own is None or lane is None:
            raise AssertionError(f"no account for {user}/{project}")
        charged = standing.charge(own[0], amount, own[1], t, self.share.half_life)
        self.db.run(sql.PUT_USER, {"user": user, "standing": charged, "weight": own[1]})
        charged = standing.charge(lane[0], amount, lane[1], t, self.share.half_life)
        self.db.run(sql.PUT_LANE, {"user": user, "project": project, "standing": charged, "weight": lane[1]})

    def _weight(self, user: str) -> float:
        return self.share.weights.get(user, 1.0)

    def _project_weight(self, project: str) -> float:
        return self.share.project_weights.get(project, 1.0)
