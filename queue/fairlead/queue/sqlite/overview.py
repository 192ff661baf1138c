"""Counts for people: slots, what waits, what runs, who holds locks.

Plain dictionaries and no heavy imports: `fairlead status` must feel instant.
"""

import os
from typing import Any

from fairlead.base.clock import iso
from fairlead.queue.room import reserve_in, shortage
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.connection import Connection

_RANKS = ("critical", "high", "medium", "low")


def capacity(db: Connection, slots: int | None = None) -> dict[str, Any]:
    """Slots and who uses them: the content of capacity.json."""
    by_project: dict[str, int] = dict(db.rows(sql.ACTIVE_BY_PROJECT))
    by_user: dict[str, int] = dict(db.rows(sql.ACTIVE_BY_USER))
    used = sum(by_user.values())
    most = slots if slots is not None else int(db.value(sql.FACT, ("slots_max",)) or 0)
    return {
        "slots": {"max": most, "used": used, "available": max(0, most - used)},
        "by_project": by_project,
        "by_user": by_user,
    }


def no_room(db: Connection) -> str:
    """Why nothing new is begun, if there is too little room on the disk."""
    return shortage(os.path.dirname(db.path), reserve_in(dict(db.rows(sql.FACTS))))


def in_words(db: Connection) -> str:
    """The queue in a few words."""
    slots = capacity(db)["slots"]
    pending, _ = db.row(sql.PENDING_TOTAL) or (0, 0)
    most = f" of {slots['max']}" if slots["max"] else ""  # the daemon tells, when it starts
    short = "no room on the disk, nothing new is begun; " if no_room(db) else ""
    return f"{short}{slots['used']}{most} slots used, {pending} waiting"


def status(db: Connection) -> dict[str, Any]:
    """The whole queue at one moment."""
    with db.reading():
        taken = capacity(db)
        locks = [_lock(row) for row in db.rows(sql.LOCKS)]
        return {
            "pending": _pending(db),
            "slots": taken["slots"],
            "active": {
                "slots_used": taken["slots"]["used"],
                "slots_max": taken["slots"]["max"],
                "by_project": taken["by_project"],
                "by_user": taken["by_user"],
            },
            "user_locks": {"active": len(locks), "details": locks},
            "no_room": no_room(db),
            "paused": [row[0] for row in db.rows(sql.PAUSES)],
            "finished": dict(db.rows(sql.FINISHED_BY_STATUS)),
        }


def _pending(db: Connection) -> dict[str, int]:
    by_rank: dict[int, int] = dict(db.rows(sql.PENDING_BY_RANK))
    total, ready = db.row(sql.PENDING_TOTAL) or (0, 0)
    by_rank[_RANKS.index("medium")] = total - sum(by_rank.values())
    return {name: by_rank.get(rank, 0) for rank, name in enumerate(_RANKS)} | {
        "total": total,
        "not_due": total - ready,
    }


def _lock(row: tuple[Any, ...]) -> dict[str, Any]:
    name, lock_id, token, task_id, kind, state, acquired_at, expires_at, host, _, pid, *_ = row
    return {
        "user": name.removeprefix("user:"),
        "name": name,
        "lock_id": lock_id,
        "task_id": task_id,
        "kind": kind,
        "state": state,
        "acquired_at": iso(acquired_at),
        "acquired_by_pid": pid,
        "expires_at": iso(expires_at),
        "host": host,
        "token": token,
    }
