"""A new store from the files: accepted/ says what was asked, the archive what ended, run directories what runs.

The new store is made beside the old place and renamed at the end: killed at any line, nothing is half done.
"""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.base.clock import SystemClock
from fairlead.base.errors import FairleadError, RefusedError
from fairlead.base.files import make_directory, read_json, read_plain, remove, sync_directory, sync_file
from fairlead.base.identity import boot_id, host
from fairlead.base.ids import is_id
from fairlead.base.service import Single
from fairlead.conductor import rundir, tree
from fairlead.conductor.launch import MARKER, read_launch
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import CorruptMetaError, Meta, read_meta
from fairlead.config.loading import load
from fairlead.config.paths import Paths
from fairlead.queue.accepted import RECORD, Accepted
from fairlead.queue.admit import Log, created_at, owner_of
from fairlead.queue.archive import Archive
from fairlead.queue.instance import share_of
from fairlead.queue.record import task_of
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.states import Status
from fairlead.queue.store import Holder, Lock
from fairlead.queue.task import Attempt, Task
from fairlead.queue.taskfile import parse_task

#: Tokens of attempts that left no trace are below this distance from the highest that did.
TOKEN_GAP = 1_000_000


class Rebuilt(Struct, kw_only=True):
    """How many tasks were restored in which state, and which files could not be read."""

    restored: dict[str, int] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    aside: str | None = None


class StoreThereError(RefusedError):
    """There is a store already."""


class _Found(Struct, kw_only=True):
    """What the files tell of one task."""

    task: Task
    attempts: list[Attempt]
    lock: Lock | None = None


class Rebuild:
    """Rebuilds the store of one stopped instance."""

    def __init__(self, paths: Paths, environ: Mapping[str, str], log: Log) -> None:
        self.paths = paths
        self.log = log
        self.config = load(paths, environ).config
        self.clock = SystemClock()
        self.archive = Archive(paths.archive)
        self.accepted = Accepted(paths.accepted)
        self.report = Rebuilt()
        self.new_path = paths.store + ".rebuilding"

    def run(self, *, replace: bool) -> Rebuilt:
        """Make the new store; daemon and watchdog must be stopped, and stay so meanwhile."""
        for directory in self.paths.directories():
            make_directory(directory)
        singles = [Single(self.paths.daemon_lock, "the daemon"), Single(self.paths.watchdog_lock, "the watchdog")]
        for single in singles:
            single.take()
        try:
            self._set_aside(replace=replace)
            self._build()
            self._put_in_place()
        finally:
            for single in singles:
                single.release()
        self.log.info("rebuilt", **self.report.restored)
        return self.report

    def _set_aside(self, *, replace: bool) -> None:
        """An old store is kept: whoever rebuilds may have been wrong about it."""
        if not os.path.exists(self.paths.store):
            return
        if not replace:
            raise StoreThereError(f"{self.paths.store} is there: say --replace to put it aside and rebuild.")
        aside = f"{self.paths.store}.{self.clock.wall_ms()}"
        for ending in ("-wal", "-shm", ""):
            if os.path.exists(self.paths.store + ending):
                os.rename(self.paths.store + ending, aside + ending)
        self.report.aside = aside

    def _build(self) -> None:
        for ending in ("", "-wal", "-shm"):
            remove(self.new_path + ending)
        store = open_store(self.new_path, share_of(self.config))
        try:
            self._restore_all(store)
        finally:
            store.close()

    def _put_in_place(self) -> None:
        """Closing the last connection has emptied the log into the file: it is whole by itself."""
        sync_file(self.new_path)
        os.rename(self.new_path, self.paths.store)
        sync_directory(self.paths.home)

    # ------------------------------------------------------------------ what the files tell

    def _restore_all(self, store: SqliteStore) -> None:
        """Newest knowledge first: a run beats the queue, a later version beats an earlier one."""
        found = self._runs(self._waiting())
        for task_id, one in self._ended(found):
            found[task_id] = one
        highest = max((one.task.token for one in found.values()), default=0)
        store.reserve_tokens(highest + TOKEN_GAP)
        now = self.clock.wall_ms()
        for one in sorted(found.values(), key=lambda one: (one.task.seq or one.task.created_at, one.task.id)):
            express = one.task.spec.priority == 0 and one.task.spec.user in self.config.operators
            store.restore(one.task, one.attempts, one.lock, express=express, now=now)
            count = self.report.restored
            count[one.task.status] = count.get(one.task.status, 0) + 1

    def _waiting(self) -> dict[str, _Found]:
        """Every accepted file, as a queued task; a record (changed, retried) beats the file it came as."""
        found: dict[str, _Found] = {}
        for task_id, path in self.accepted.files():
            is_record = path.endswith(RECORD)
            if not is_id(task_id) or (task_id in found and not is_record):
                continue
            try:
                found[task_id] = self._from_record(path) if is_record else self._from_file(task_id, path)
            except (FairleadError, OSError, ValueError, KeyError, TypeError) as error:
                self.report.unreadable.append((path, str(error)))
        return found

    def _from_record(self, path: str) -> _Found:
        task, attempts = task_of(read_json(path))
        return _Found(task=task, attempts=attempts)

    def _from_file(self, task_id: str, path: str) -> _Found:
        made = created_at(task_id, self.clock.wall_ms())
        data = read_plain(path, self.config.limits.task_file_bytes)
        owner = self.config.default_user or owner_of(path)
        spec = parse_task(data, os.path.basename(path), owner, self.config, made).spec
        task = Task(id=task_id, seq=0, spec=spec, status=Status.QUEUED, version=1, created_at=made, updated_at=made)
        return _Found(task=task, attempts=[])

    def _ended(self, live: dict[str, _Found]) -> Iterator[tuple[str, _Found]]:
        """Every archived task, unless it was changed or retried after it was archived, or runs."""
        for task_id in self.archive.ids():
            try:
                task, attempts = task_of(self.archive.read(task_id) or {})
            except (FairleadError, OSError, ValueError, KeyError, TypeError) as error:
                self.report.unreadable.append((self.archive.path(task_id), str(error)))
                continue
            newer = live.get(task_id)
            if newer is None or (newer.task.status is not Status.RUNNING and newer.task.version <= task.version):
                yield task_id, _Found(task=replace(task, archived=True), attempts=attempts)

    # ------------------------------------------------------------------ runs

    def _runs(self, found: dict[str, _Found]) -> dict[str, _Found]:
        """Runs are restored as running, whatever became of them: the watchdog looks, and records it."""
        for run_dir in list(rundir.all_active(self.paths.conductor)):
            task_id, _, number = os.path.basename(run_dir).rpartition(".")
            if void(run_dir) is Void.NEVER_STARTED:
                rundir.discard(run_dir)
            elif task_id in found and number.isdigit():
                self._add_run(found[task_id], run_dir, int(number))
            elif self.archive.read(task_id) is None:
                self.report.unreadable.append((run_dir, "its task has no accepted file"))
        return found

    def _add_run(self, one: _Found, run_dir: str, number: int) -> None:
        if number < one.task.attempt:
            return
        meta = self._meta(one.task, run_dir, number)
        one.task = replace(
            one.task,
            status=Status.RUNNING,
            attempt=meta.attempt,
            token=meta.token,
            started_at=meta.started_at,
            version=one.task.version + 2,
        )
        one.attempts = [attempt for attempt in one.attempts if attempt.number != number] + [_attempt(meta)]
        one.lock = self._lock(meta)

    def _meta(self, task: Task, run_dir: str, number: int) -> Meta:
        """What is known of a run; where meta.json is spoilt, task.json names the lock, and the living may object."""
        try:
            return read_meta(run_dir)
        except CorruptMetaError as error:
            if alive := tree.marked("FAIRLEAD_TASK_ID", task.id):
                pids = ", ".join(str(process.pid) for process in alive)
                raise RefusedError(
                    f"processes of task {task.id} are alive ({pids}), and {error}: wait for their end, or end them, "
                    "then rebuild again."
                ) from error
        return self._reconstructed(task, run_dir, number)

    def _reconstructed(self, task: Task, run_dir: str, number: int) -> Meta:
        """A run of which nothing is alive and whose meta.json is spoilt: the watchdog will find it lost."""
        try:
            lock_id = read_launch(run_dir).env[MARKER]
        except (OSError, ValueError, KeyError, FairleadError):
            lock_id = f"{task.id}_0"
        return Meta(
            id=task.id,
            status=Status.RUNNING,
            user=task.spec.user,
            project=task.spec.project,
            agent=task.spec.agent,
            attempt=number,
            lock_id=lock_id,
            token=int(lock_id.rpartition("_")[2]),
            host=host(),
            boot_id=boot_id(),
            claimed_boot=self.clock.boot(),
            claimed_at=self.clock.wall_ms(),
        )

    def _lock(self, meta: Meta) -> Lock:
        lease = self.config.per_user_serialization.lock_timeout_seconds
        serialized = self.config.per_user_serialization.enabled
        supervisor = meta.supervisor
        return Lock(
            name=f"user:{meta.user}" if serialized else f"task:{meta.id}",
            lock_id=meta.lock_id,
            token=meta.token,
            task_id=meta.id,
            kind="run",
            state="held",
            acquired_at=meta.claimed_at,
            expires_at=meta.claimed_at + int(lease * 1000),
            holder=Holder(
                host=meta.host,
                boot_id=meta.boot_id,
                pid=supervisor.pid if supervisor else 0,
                start=supervisor.start if supervisor else 0,
            ),
        )


def _attempt(meta: Meta) -> Attempt:
    return Attempt(
        number=meta.attempt,
        token=meta.token,
        claimed_at=meta.claimed_at,
        started_at=meta.started_at,
        host=meta.host,
    )
