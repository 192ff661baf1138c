"""The embedded store: held to the suite for all stores, and to what is SQLite's own."""

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.queue.conformance import StoreConformance
from tests.queue.driver import HOUR, NOW, Driver, MakeStore, a_spec
from tests.queue.invariants import ALL, check_counters, check_store
from tests.support.kernel_errors import KNOWN
from tests.support.programs import ROOT, command, run, started

from fairlead.queue.errors import (
    NothingChangedError,
    StoreBrokenError,
    StoreBusyError,
    StoreUnavailableError,
    StoreVersionError,
)
from fairlead.queue.sqlite import connection, statements
from fairlead.queue.sqlite.base import as_json
from fairlead.queue.sqlite.connection import Connection
from fairlead.queue.sqlite.schema import MIGRATIONS, VERSION
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.states import Status
from fairlead.queue.store import Filter, Share
from fairlead.queue.task import Changes, Task


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "queue.db")


class TestSqlite(StoreConformance):
    """SQLite passes the suite."""

    @pytest.fixture
    def make_store(self, path: str) -> Iterator[MakeStore]:
        opened: list[SqliteStore] = []

        def make(share: Share | None = None) -> SqliteStore:
            opened.append(open_store(path, share))
            return opened[-1]

        yield make
        for store in opened:
            store.close()

    @pytest.fixture
    def audit(self, path: str) -> Callable[[], None]:
        return lambda: check_counters(path)


# ---------------------------------------------------------------------- durability


def test_every_commit_is_durable(path: str) -> None:
    """The file is in WAL mode, each connection syncs in full, and memory mapping is off."""
    for _ in range(2):
        db = Connection(path)._db
        assert (db.pragma("journal_mode"), db.pragma("synchronous"), db.pragma("mmap_size")) == ("wal", 2, 0)


@pytest.mark.skipif(not KNOWN, reason="the numbers of this machine's system calls are not known")
def test_a_commit_that_cannot_be_synced_is_no_commit(path: str) -> None:
    """When the kernel refuses to sync, the store says that it cannot be trusted, and never that all is well."""
    assert run("queue", "failing_disk", path, "fdatasync").split() == ["StoreBrokenError"]


def test_nobody_else_can_read_the_store(path: str) -> None:
    """The file, its log and its index are their owner's alone, whatever the umask lets through."""
    before = os.umask(0o022)
    try:
        store = open_store(path)
        Driver(store).add()
        modes = {name: stat.S_IMODE(os.stat(path + name).st_mode) for name in ("", "-wal", "-shm")}
    finally:
        os.umask(before)
    assert modes == {"": 0o600, "-wal": 0o600, "-shm": 0o600}


def test_a_killed_writer_leaves_whole_transactions(path: str) -> None:
    """Whatever a killed process had acknowledged is there, and its accounts fit."""
    with subprocess.Popen(
        command("queue", "add", path, 1, 10_000), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout
        acknowledged = [writer.stdout.readline().split()[0] for _ in range(20)]
        for pid in Path(f"/proc/{writer.pid}/task/{writer.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        acknowledged += [line.split()[0] for line in writer.stdout.read().splitlines()]
    store = open_store(path)
    assert {task.id for task in store.list_tasks(Filter(limit=ALL))} >= set(acknowledged)
    check_counters(path)


# ---------------------------------------------------------------------- versions


def test_a_newer_schema_is_refused(path: str) -> None:
    """A store that a newer Fairlead wrote is not touched."""
    open_store(path).close()
    apsw.Connection(path).pragma("user_version", VERSION + 1)
    for read_only in (False, True):
        with pytest.raises(
            StoreVersionError, match=f"schema version {VERSION + 1}, this Fairlead knows up to {VERSION}"
        ):
            Connection(path, read_only=read_only)
    assert apsw.Connection(path).pragma("user_version") == VERSION + 1


def test_a_reader_does_not_upgrade(path: str) -> None:
    """A short command that finds an older schema says so and leaves it alone."""
    apsw.Connection(path).execute("CREATE TABLE other (x)")
    with pytest.raises(StoreVersionError, match="its daemon upgrades it"):
        Connection(path, read_only=True)
    assert apsw.Connection(path).pragma("user_version") == 0


def test_a_reader_makes_no_store(path: str) -> None:
    """Without a store there is nothing to read, and none is made."""
    with pytest.raises(StoreUnavailableError):
        Connection(path, read_only=True)
    assert not Path(path).exists()


def test_an_older_schema_is_brought_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version's script runs on a store of this version; its tasks stay, and it runs once."""
    task_id = Driver(open_store(path)).add()
    monkeypatch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE later (x); INSERT INTO later VALUES (1)"))
    monkeypatch.setattr(connection, "VERSION", VERSION + 1)
    for _ in range(2):
        store = open_store(path)
        assert store.get(task_id).status is Status.QUEUED
        assert store.db.rows("SELECT x FROM later") == [(1,)]


def test_tasks_of_the_first_version_keep_their_order(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store from before tasks had places is brought up: every task stands where its number put it."""
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIGRATIONS", MIGRATIONS[:1])
        patch.setattr(connection, "VERSION", 1)
        old = open_store(path)
        for number, rank in enumerate((2, 0, 2, 3)):
            old.db.run(_ADD_TO_THE_FIRST_VERSION, (f"t{number}", rank, NOW, as_json(a_spec(priority=rank))))
        old.db.run("INSERT INTO users (name, standing, weight, pending, ready) VALUES ('alice', 0, 1, 4, 4)")
        old.db.run("INSERT INTO lanes SELECT name, 'site', standing, weight, pending, ready, 0 FROM users")
        old.close()
    drive = Driver(open_store(path))
    assert drive.store.get("t0").seq == 1
    new = drive.add()
    assert drive.drain() == ["t1", "t0", "t2", new, "t3"]
    check_counters(path)


_ADD_TO_THE_FIRST_VERSION = """
INSERT INTO tasks (id, user, project, rank, status, due, since, created_at, updated_at, spec)
VALUES (?1, 'alice', 'site', ?2, 'queued', 1, ?3, ?3, ?3, ?4)
"""


def test_a_failed_upgrade_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that breaks off leaves the old version, whole and usable."""
    task_id = Driver(open_store(path)).add()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE later (x); SELECT * FROM nowhere"))
        patch.setattr(connection, "VERSION", VERSION + 1)
        with pytest.raises(apsw.SQLError, match="nowhere"):
            open_store(path)
    store = open_store(path)
    assert store.get(task_id).id == task_id
    assert store.db.value("SELECT count(*) FROM sqlite_schema WHERE name = 'later'") == 0


def test_an_upgrade_goes_as_far_as_it_can(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each script is a transaction of its own: those before the one that breaks off are done, and not done again."""
    open_store(path).close()
    good, bad = "CREATE TABLE later (x)", "SELECT * FROM nowhere"
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, good, bad))
        patch.setattr(connection, "VERSION", VERSION + 2)
        with pytest.raises(apsw.SQLError, match="nowhere"):
            open_store(path)
        assert apsw.Connection(path).pragma("user_version") == VERSION + 1
        patch.setattr(connection, "MIGRATIONS", (*MIGRATIONS, good, "INSERT INTO later VALUES (1)"))
        assert open_store(path).db.rows("SELECT x FROM later") == [(1,)]


def test_an_unsafe_sqlite_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is opened, a library that can corrupt the file is refused, with what to do."""
    monkeypatch.setattr(connection, "OLDEST_SQLITE", (99, 1, 2))
    with pytest.raises(StoreVersionError, match=r"at least 99\.1\.2 is needed: pip install"):
        open_store(path)
    assert not Path(path).exists()


def test_the_real_library_is_safe() -> None:
    """The SQLite in use has the repair of the WAL-reset bug."""
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


def test_a_place_without_a_write_ahead_log_is_refused() -> None:
    """Where SQLite cannot keep one, it says so silently; the store says it aloud."""
    with pytest.raises(StoreUnavailableError, match="cannot have a write-ahead log"):
        open_store(":memory:")


# ---------------------------------------------------------------------- trouble


def test_a_busy_store_is_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process writes, ours waits; after its patience it says what to do, and nothing has happened."""
    drive = Driver(open_store(path))
    with started("queue", "write_lock", path) as writer:
        assert drive.look().candidates == ()  # readers are not kept
        monkeypatch.setattr(connection, "BUSY_MS", 50)
        impatient = Driver(open_store(path))
        with pytest.raises(StoreBusyError, match="try again in a moment"):
            impatient.add()
        assert writer.stdin
        writer.stdin.close()
        drive.add()
    assert len(drive.store.list_tasks(Filter())) == 1


def test_a_store_that_is_being_made_is_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite gives up at once where two switch to the write-ahead log together; we go on trying for a while."""
    db = apsw.Connection(path)
    db.execute("CREATE TABLE other (x); BEGIN IMMEDIATE")
    monkeypatch.setattr(connection, "BUSY_MS", 200)
    begun = time.monotonic()
    with pytest.raises(StoreBusyError):
        open_store(path)
    assert time.monotonic() - begun >= 0.2
    db.execute("ROLLBACK")
    assert open_store(path).count_active() == 0


def test_a_store_that_was_being_made_is_opened(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it has finished while we tried again: the store opens as if nothing had been."""
    db = apsw.Connection(path)
    db.execute("CREATE TABLE other (x); BEGIN IMMEDIATE")
    monkeypatch.setattr(time, "sleep", lambda _: db.execute("ROLLBACK") if db.in_transaction else None)
    assert open_store(path).count_active() == 0


def test_no_place_for_a_store(tmp_path: Path) -> None:
    """A folder that is missing, and a folder in the file's place, are told apart from a broken file."""
    for wrong in (tmp_path / "missing" / "queue.db", tmp_path):
        with pytest.raises(StoreUnavailableError, match="cannot be opened or written to now"):
            open_store(str(wrong))


def _in_mount_namespace(name: str, folder: Path) -> list[str]:
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("no mount namespace for an ordinary user here")
    line = [*unshare, *command("queue", name, folder)]
    done = subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    """Nothing is acknowledged that is not there, and with a little space the same connection goes on."""
    assert _in_mount_namespace("full_disk", tmp_path) == ["StoreUnavailableError", "True", "1"]


def test_a_read_only_disk_is_said(tmp_path: Path) -> None:
    """Neither reading nor writing pretends to work."""
    assert _in_mount_namespace("read_only_disk", tmp_path) == ["StoreUnavailableError"] * 2


@pytest.mark.parametrize("wrong", [b"not a database at all, but long enough to have a header" * 100, b"\x00" * 8192])
def test_a_file_that_is_no_database_is_broken(path: str, wrong: bytes) -> None:
    """It is refused with what to do, and left as it is."""
    Path(path).write_bytes(wrong)
    with pytest.raises(StoreBrokenError, match="fairlead rebuild"):
        Driver(open_store(path)).add()
    assert Path(path).read_bytes() == wrong


def test_spoilt_pages_are_noticed(path: str) -> None:
    """A store whose pages were overwritten says that it cannot be trusted, at the first look that meets one."""
    store = open_store(path)
    Driver(store).add_many(2000)
    store.close()
    whole = Path(path).read_bytes()
    half = len(whole) // 2
    Path(path).write_bytes(whole[:half] + b"\xff" * half)
    broken = open_store(path)
    with pytest.raises(StoreBrokenError, match="cannot be trusted"):
        broken.list_tasks(Filter(limit=ALL))
    with pytest.raises(StoreBrokenError):
        Driver(broken).add()


def test_an_error_of_our_own_is_not_dressed_up(path: str) -> None:
    """A wrong statement is nobody's disk: it comes through as it is, and the transaction is undone."""
    store = open_store(path)
    with pytest.raises(apsw.SQLError, match="no such table"):  # noqa: SIM117, PT012 - the transaction is what is tested
        with store.db.transaction():
            store.db.run("INSERT INTO facts VALUES ('a', 'b')")
            store.db.run("INSERT INTO nowhere VALUES (1)")
    assert store.facts() == {}


def test_a_reading_that_breaks_off_leaves_the_connection_free(path: str) -> None:
    """Whatever goes wrong between two reads of one moment, the next transaction can begin."""
    store = open_store(path)
    with pytest.raises(apsw.SQLError), store.db.reading():
        store.db.rows("SELECT * FROM nowhere")
    with store.db.reading():
        store.db._handle.execute("ROLLBACK")  # as SQLite itself does after some errors
    assert Driver(store).add()


def test_a_connection_does_not_cross_a_fork(path: str) -> None:
    """A child that got one can neither read, nor write, nor close it; the parent's goes on."""
    assert run("queue", "after_fork", path).split() == ["StoreBrokenError", "StoreBrokenError", "closed", "True"]


CHANGED: dict[str, Callable[[SqliteStore, Task], object]] = {
    "CANCEL_QUEUED": lambda store, task: store.cancel(task.id, by="bob", now=NOW),
    "REQUEST_CANCEL": lambda store, task: store.cancel(task.id, by="bob", now=NOW),
    "RETRY": lambda store, task: store.retry(task.id, by="bob", now=NOW),
    "CHANGE": lambda store, task: store.update(task.id, task.version, Changes(title="new"), now=NOW),
    "MAKE_DUE": lambda store, _: store.promote_due(NOW + HOUR),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_that_changes_nothing_is_undone(path: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A guard that refuses what was read before is an error by name: no account moves, and nothing is told."""
    store = open_store(path)
    drive = Driver(store)
    task_id = drive.add(run_at=NOW + HOUR if name == "MAKE_DUE" else None)
    if name == "REQUEST_CANCEL":
        drive.claim_task(task_id)
    elif name == "RETRY":
        drive.store.cancel(task_id, by="bob", now=NOW)
    before, told = drive.store.get(task_id), drive.events()
    monkeypatch.setattr(statements, name, f"{getattr(statements, name).rstrip()} AND 0")
    with pytest.raises(NothingChangedError, match="not in the state that was read"):
        CHANGED[name](store, before)
    assert (drive.store.get(task_id), drive.events()) == (before, told)
    check_counters(path)


# ---------------------------------------------------------------------- many at once


def test_many_make_the_store_at_once(path: str) -> None:
    """Sixteen processes that find no store make one, together, and all of them can use it."""
    assert run("queue", "migrate", path, 16).split() == ["0"] * 16
    check_counters(path)


def test_a_thousand_tasks_from_thirty_two_processes(path: str) -> None:
    """All are acknowledged, all are there, and no two have the same id."""
    said = [line.split() for line in run("queue", "add", path, 32, 1000).splitlines()]
    assert {new for _, new in said} == {"True"}
    assert len({task_id for task_id, _ in said}) == 1000
    store = open_store(path)
    assert {task.id for task in store.list_tasks(Filter(limit=ALL))} == {task_id for task_id, _ in said}
    assert len({task.seq for task in store.list_tasks(Filter(limit=ALL))}) == 1000
    check_counters(path)


def test_one_of_many_gets_the_claim(path: str) -> None:
    """Eight processes that claim the same task at the same moment: one has it."""
    task_id = Driver(open_store(path)).add()
    assert len(run("queue", "claim_one", path, 8, task_id, "alice").split()) == 1
    store = open_store(path)
    assert [attempt.number for attempt in store.attempts(task_id)] == [1]
    check_store(store)


def test_many_dispatchers_share_the_queue(path: str) -> None:
    """Eight processes that decide and claim at will: every user's first task is claimed once, under its own token."""
    drive = Driver(open_store(path))
    for number in range(60):
        drive.add_many(2, f"u{number}")
    claims = [line.split() for line in run("queue", "claim", path, 8).splitlines()]
    assert len(claims) == len({task_id for task_id, _, _ in claims}) == len({token for _, token, _ in claims}) == 60
    assert drive.store.count_active() == 60
    check_store(drive.store)
    check_counters(path)


def test_closing_twice_is_harmless(path: str) -> None:
    """Whoever closes again closes nothing."""
    store = open_store(path)
    store.close()
    store.close()
