"""How the embedded store reads: by the right index, however many tasks there are, and counts that are true."""

from pathlib import Path

import apsw
import pytest
from tests.queue.driver import HOUR, Driver

from fairlead.queue.sqlite import overview
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.states import Status
from fairlead.queue.store import Filter


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


# ---------------------------------------------------------------------- a million tasks


def _plan(store: SqliteStore, statement: str, values: object) -> str:
    return " | ".join(row[3] for row in store.db.rows(f"EXPLAIN QUERY PLAN {statement}", values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("which", "indexes"),
    [
        (Filter(statuses=frozenset({Status.FAILED})), {"tasks_by_status"}),
        (Filter(user="alice"), {"tasks_of_user"}),
        (Filter(user="alice", statuses=frozenset({Status.FAILED, Status.LOST})), {"tasks_of_user"}),
        (Filter(project="site"), {"tasks_of_project"}),
        (Filter(project="site", statuses=frozenset({Status.QUEUED})), {"tasks_of_project"}),
        (Filter(user="alice", project="site"), {"tasks_of_user", "tasks_of_project"}),
    ],
)
def test_no_list_reads_the_whole_table(path: str, which: Filter, indexes: set[str]) -> None:
    """Whatever a list is narrowed by, it walks down an index that holds what is asked for, in the right order."""
    store = open_store(path)
    asked: list[str] = []
    store.db._handle.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: asked.append(event["sql"]))
    store.list_tasks(which)
    store.db._handle.trace_v2(0)
    values = {"user": "u", "project": "p", "limit": 9} | {f"status{number}": "s" for number in range(len(Status))}
    plan = _plan(store, asked[-1], values)
    assert "SCAN tasks" not in plan
    assert "USE TEMP B-TREE" not in plan
    assert any(index in plan for index in indexes)


def test_a_list_of_everything_begins_at_the_newest(path: str) -> None:
    """It reads as many tasks as are asked for, down the sequence, and sorts nothing."""
    plan = _plan(open_store(path), sql.newest(user=False, project=False, statuses=0), {"limit": 9})
    assert plan == "SCAN tasks"


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("NEXT_USERS", "users_ready"),
        ("NEXT_LANE", "lanes_ready"),
        ("HEADS", "tasks_heads"),
        ("EXPRESS", "tasks_express"),
        ("COME_DUE", "tasks_not_due"),
        ("NEXT_DUE", "tasks_not_due"),
        ("COUNT_ACTIVE", "tasks_active"),
        ("ACTIVE_TASKS", "tasks_active"),
        ("LEVEL_OF_USERS", "tasks_active"),
        ("LEVEL_OF_LANES", "tasks_active"),
        ("UNARCHIVED", "tasks_unarchived"),
        ("FORGETTABLE", "tasks_archived"),
        ("FORGET_OLD_EVENTS", "events_of_nobody"),
        ("FIND", "sqlite_autoindex_tasks_1"),
        ("PENDING_BY_RANK", "tasks_unusual"),
    ],
)
def test_hot_statements_use_the_small_index(path: str, name: str, index: str) -> None:
    """What every pass asks looks only at what waits, runs or has just ended, however many have been there before."""
    store = open_store(path)
    statement: str = getattr(sql, name)
    values = ("x",) * statement.count("?") or dict.fromkeys(
        ("user", "project", "serialized", "exclude", "limit", "part"), "1"
    )
    assert index in _plan(store, statement, values)


@pytest.mark.parametrize(
    "name",
    ["LOCK_BY_NAME", "LOCK_BY_ID", "PAST_LOCK", "IS_FREE", "REMEMBER_LOCK", "FREE_LOCK", "RENEW_LOCK"],
)
def test_a_lock_is_found_however_many_there_are(path: str, name: str) -> None:
    """Taking, asking for, renewing and freeing a lock walks through no table: neither users nor tasks make it slow."""
    statement: str = getattr(sql, name)
    keys = ("user", "serialized", "lock_id", "now", "why", "evidence", "expires_at")
    plan = _plan(open_store(path), statement, ("x",) * statement.count("?") or dict.fromkeys(keys, "1"))
    assert "SEARCH" in plan
    assert "SCAN" not in plan.replace("SCAN CONSTANT ROW", "")


def test_a_tail_is_looked_for_in_the_index_of_ids(path: str) -> None:
    """Looking for an id by its tail reads ids alone, never the tasks."""
    plan = _plan(open_store(path), sql.FIND_BY_TAIL, {"part": "x"})
    assert plan == "SCAN tasks USING COVERING INDEX sqlite_autoindex_tasks_1"


# ---------------------------------------------------------------------- counts for people


def test_counts_are_those_of_the_tasks(path: str) -> None:
    """Capacity and status tell what waits by priority, what runs for whom, who holds locks, and what has ended."""
    store = open_store(path)
    drive = Driver(store)
    store.set_facts({"slots_max": "4"})
    drive.finish(drive.run_one("zoe", "old"), Status.FAILED)
    claim = drive.run_one("alice", "site")
    for rank in (0, 2, 2, 3):
        drive.add("alice", "site", priority=rank)
    drive.add("bob", "shop", priority=2, run_at=drive.now + HOUR)
    drive.hold("carol")
    drive.store.pause("project:shop", by="op", reason="", now=drive.now)
    told = overview.status(store.db)
    assert told["pending"] == {"critical": 1, "high": 0, "medium": 3, "low": 1, "total": 5, "not_due": 1}
    assert told["slots"] == {"max": 4, "used": 1, "available": 3}
    assert told["active"] == {"slots_used": 1, "slots_max": 4, "by_project": {"site": 1}, "by_user": {"alice": 1}}
    assert told["finished"] == {"failed": 1}
    assert told["paused"] == ["project:shop"]
    assert told["user_locks"]["active"] == 2
    details = {lock["user"]: lock for lock in told["user_locks"]["details"]}
    assert details["alice"]["task_id"] == claim.task.id
    assert (details["carol"]["kind"], details["carol"]["acquired_by_pid"]) == ("hold", 4711)
    assert overview.capacity(store.db)["slots"] == {"max": 4, "used": 1, "available": 3}
    assert overview.capacity(store.db, slots=0)["slots"] == {"max": 0, "used": 1, "available": 0}


def test_counts_of_an_empty_store(path: str) -> None:
    """Nothing is counted as nothing, also where no settings were told yet."""
    told = overview.status(open_store(path).db)
    assert told["pending"] == {"critical": 0, "high": 0, "medium": 0, "low": 0, "total": 0, "not_due": 0}
    assert (told["active"]["slots_max"], told["finished"], told["paused"]) == (0, {}, [])
