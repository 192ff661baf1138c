"""A new store from the files: accepted/ says what was asked, the archive what ended, run directories what runs.

The new store is made beside the old place and renamed at the end: killed at any line, nothing is half done.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

from msgspec import Struct, field, structs

from fairlead.base.clock import SystemClock
from fairlead.base.errors import FairleadError, RefusedError
from fairlead.base.files import (
    folders_in,
    make_directory,
    names_in,
    read_json,
    read_plain,
    remove,
    sync_directory,
    sync_file,
)
from fairlead.base.identity import ProcessId, boot_id, host
from fairlead.base.ids import created_at, is_id
from fairlead.base.logs import Log
from fairlead.base.service import Single
from fairlead.conductor import rundir, tree
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import CorruptMetaError, Meta, read_meta
from fairlead.conductor.orders import MARKER, TASK_MARKER, read_launch
from fairlead.config.loading import load
from fairlead.config.paths import Paths
from fairlead.queue.accepted import Accepted
from fairlead.queue.admit import Claimed, claimed_in
from fairlead.queue.archive import Archive
from fairlead.queue.instance import Presence, share_of
from fairlead.queue.record import task_of
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.states import Status
from fairlead.queue.store import Holder, Lock, Restored
from fairlead.queue.task import Attempt, Task, is_express
from fairlead.queue.taskfile import parse_task

#: Attempts that left no trace may have used tokens up to this far above the highest that is known.
TOKEN_GAP = 1_000_000
#: Archived tasks that are restored with one commit.
PORTION = 1000


class Rebuilt(Struct, kw_only=True):
    """How many tasks were restored in which state, and which files could not be read."""

    restored: dict[str, int] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    aside: str | None = None


class StoreThereError(RefusedError):
    """There is a store already."""


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
        #: For runs whose token is not known: below all that were ever given out.
        self._unknown_token = 0

    def run(self, *, replace: bool) -> Rebuilt:
        """Make the new store; daemon and watchdog must be stopped, and stay so meanwhile."""
        for directory in self.paths.directories():
            make_directory(directory)
        with self._alone():
            if os.path.exists(self.paths.store) and not replace:
                raise StoreThereError(f"{self.paths.store} is there: say --replace to put it aside and rebuild.")
            self._build()
            self._put_in_place()
        self.log.info("rebuilt", **self.report.restored)
        return self.report

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody works with the old store, or begins to, until the new one is there."""
        singles = [Single(self.paths.single_lock(name), f"the {name}") for name in ("daemon", "watchdog")]
        presence = Presence(self.paths)
        try:
            for single in singles:
                single.take()
            presence.alone()
            yield
        finally:
            presence.release()
            for single in singles:
                single.release()

    def _build(self) -> None:
        for ending in ("", "-wal", "-shm"):
            remove(self.new_path + ending)
        store = open_store(self.new_path, share_of(self.config))
        try:
            self._restore_all(store)
        finally:
            store.close()

    def _put_in_place(self) -> None:
        """The old store is kept: whoever rebuilds may have been wrong about it.

        Closing the last connection has emptied the log into the new file: it is whole by itself.
        """
        sync_file(self.new_path)
        aside = f"{self.paths.store}.{self.clock.wall_ms()}"
        # The file before its log: without it nobody starts, without its log it would be an older one. And a log that
        # was left behind by itself would be taken for the new one's.
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.rename(self.paths.store + ending, aside + ending)
                self.report.aside = aside
        os.rename(self.new_path, self.paths.store)
        sync_directory(self.paths.home)

    # ------------------------------------------------------------------ what the files tell

    def _restore_all(self, store: SqliteStore) -> None:
        """What ended first, in portions, since there may be many; then what waits and runs."""
        live = self._with_attempts(self._runs(self._waiting()))
        self._refuse_unseen_runs(live)
        portion: list[Restored] = []
        for one in self._ended(live):
            portion.append(one)
            if len(portion) >= PORTION:
                self._restore(store, portion)
                portion = []
        self._restore(store, portion)
        self._restore(store, sorted(live.values(), key=_line))
        store.reserve_tokens(TOKEN_GAP)

    def _restore(self, store: SqliteStore, items: list[Restored]) -> None:
        store.restore(items, now=self.clock.wall_ms())
        for item in items:
            count = self.report.restored
            count[item.task.status] = count.get(item.task.status, 0) + 1

    def _waiting(self) -> dict[str, Restored]:
        """Every accepted file, as a queued task; the latest record (changed, retried) beats the file it came as."""
        found: dict[str, Restored] = {}
        for task_id, _, path in sorted(self.accepted.records()):
            with self._noting(path):
                found[task_id] = self._restored(*task_of(read_json(path)))
        for file in chain(self._accepted_files(), self._left_in_intake()):
            if is_id(file.id) and file.id not in found:
                with self._noting(file.path):
                    found[file.id] = self._from_file(file)
        return found

    def _accepted_files(self) -> Iterator[Claimed]:
        for task_id, owner, path in self.accepted.files():
            yield Claimed(id=task_id, path=path, owner=owner, name=os.path.basename(path))

    def _left_in_intake(self) -> Iterator[Claimed]:
        """Files that were not moved on. What a submitter laid there has entered the store if it has runs."""
        runs = {os.path.basename(run_dir).rpartition(".")[0] for run_dir in rundir.all_active(self.paths.conductor)}
        for file in claimed_in(self.paths):
            if not file.is_laid or file.id in runs:
                yield file

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """A file that cannot be read is told about and left where it is."""
        try:
            yield
        except (FairleadError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.report.unreadable.append((path, str(error)))

    def _from_file(self, file: Claimed) -> Restored:
        """The task as its file tells it. Who may submit was asked when it came in, and does not matter any more."""
        made = created_at(file.id, self.clock.wall_ms())
        data = read_plain(file.path, self.config.limits.task_file_bytes)
        spec = parse_task(data, file.name, file.owner, self.config, made, is_system=self.paths.is_system).spec
        task = Task(id=file.id, seq=0, spec=spec, status=Status.QUEUED, version=1, created_at=made, updated_at=made)
        return self._restored(task, [])

    def _restored(self, task: Task, attempts: Sequence[Attempt]) -> Restored:
        express = is_express(task.spec.user, task.spec.priority, self.config.operators)
        return Restored(task=task, attempts=attempts, express=express)

    def _ended(self, live: dict[str, Restored]) -> Iterator[Restored]:
        """Every archived task, unless it was changed or retried after it was archived, or runs."""
        for task_id in self.archive.ids():
            with self._noting(os.path.join(self.paths.archive, task_id)):
                task, attempts = task_of(self.archive.read(task_id) or {})
                if task.id != task_id:
                    raise ValueError(f"it tells of another task, {task.id}")
                if task_id not in live or not _is_later(live[task_id], task):
                    live.pop(task_id, None)
                    yield self._restored(structs.replace(task, archived=True), attempts)

    # ------------------------------------------------------------------ runs

    def _runs(self, found: dict[str, Restored]) -> dict[str, Restored]:
        """Runs are restored as running, whatever became of them: the watchdog looks, and records it."""
        for run_dir in list(rundir.all_active(self.paths.conductor)):
            task_id, _, number = os.path.basename(run_dir).rpartition(".")
            if not is_id(task_id) or not number.isdigit() or not os.path.isdir(run_dir):
                self.report.unreadable.append((run_dir, "it is no run directory"))
            elif void(run_dir) is Void.NEVER_STARTED:
                rundir.discard(run_dir)
            elif task_id in found:
                found[task_id] = self._with_run(found[task_id], run_dir, int(number))
            elif not os.path.exists(self.archive.path(task_id)):
                self.report.unreadable.append((run_dir, "its task has no accepted file"))
        return found

    def _refuse_unseen_runs(self, found: dict[str, Restored]) -> None:
        """Who runs without a directory must not be taken for waiting, and run a second time."""
        for task_id, alive in tree.marks(TASK_MARKER).items():
            if task_id in found and found[task_id].lock is None:
                raise RefusedError(
                    f"{_alive(task_id, alive)}, and there is no run directory: its supervisor makes it anew with its "
                    "next heartbeat. Wait for that, or end them, then rebuild again."
                )

    def _with_attempts(self, found: dict[str, Restored]) -> dict[str, Restored]:
        """Attempts that are over have left their directories: their numbers are not given out again."""
        for project in folders_in(self.paths.conductor):
            for name in names_in(os.path.join(project, "finished")):
                task_id, _, number = name.rpartition(".")
                one = found.get(task_id)
                if one is not None and number.isdigit() and one.task.attempt < int(number):
                    found[task_id] = structs.replace(one, task=structs.replace(one.task, attempt=int(number)))
        return found

    def _with_run(self, one: Restored, run_dir: str, number: int) -> Restored:
        """The task with a run that its files tell of; of several attempts the last counts."""
        if number < one.task.attempt:
            return one
        meta = self._meta(one.task, run_dir, number)
        task = structs.replace(
            one.task,
            status=Status.RUNNING,
            attempt=meta.attempt,
            token=meta.token,
            started_at=meta.started_at,
            version=one.task.version + 2,
        )
        attempts = [*(attempt for attempt in one.attempts if attempt.number != number), _attempt(meta)]
        return Restored(task=task, attempts=attempts, lock=self._lock(meta), express=one.express)

    def _meta(self, task: Task, run_dir: str, number: int) -> Meta:
        """What is known of a run; where meta.json is spoilt, task.json names the lock, and the living may object."""
        try:
            return read_meta(run_dir)
        except CorruptMetaError as error:
            if alive := tree.marked(TASK_MARKER, task.id):
                raise RefusedError(
                    f"{_alive(task.id, alive)}, and {error}: wait for their end, or end them, then rebuild again."
                ) from error
        return self._reconstructed(task, run_dir, number)

    def _reconstructed(self, task: Task, run_dir: str, number: int) -> Meta:
        """A run of which nothing is alive and whose meta.json is spoilt: the watchdog will find it lost."""
        try:
            lock_id = read_launch(run_dir).env[MARKER]
            token = int(lock_id.rpartition("_")[2])
        except (OSError, ValueError, KeyError, FairleadError):
            self._unknown_token = token = self._unknown_token - 1
            lock_id = f"{task.id}_{token}"
        return Meta(
            id=task.id,
            status=Status.RUNNING,
            user=task.spec.user,
            project=task.spec.project,
            agent=task.spec.agent,
            attempt=number,
            lock_id=lock_id,
            token=token,
            host=host(),
            boot_id=boot_id(),
            claimed_boot=self.clock.boot(),
            claimed_at=self.clock.wall_ms(),
        )

    def _lock(self, meta: Meta) -> Lock:
        lease = self.config.per_user_serialization.lock_timeout_seconds
        supervisor = meta.supervisor
        return Lock(
            name=self._lock_name(meta),
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

    def _lock_name(self, meta: Meta) -> str:
        """A run that has ended needs its user's lock no more, it has only to be recorded."""
        serialized = self.config.per_user_serialization.enabled
        return f"user:{meta.user}" if serialized and not meta.ended else f"task:{meta.id}"


def _alive(task_id: str, processes: Sequence[ProcessId]) -> str:
    return f"processes of task {task_id} are alive ({', '.join(str(process.pid) for process in processes)})"


def _is_later(live: Restored, archived: Task) -> bool:
    """Whether a task goes on after what the archive tells: with a later attempt, or changed or retried since."""
    if live.lock is not None:
        return live.task.attempt > archived.attempt
    return live.task.version > archived.version


def _line(one: Restored) -> tuple[int, int, str]:
    """Where a task stands in the line: by when it could run, which is how its waiting is measured."""
    return max(one.task.created_at, one.task.spec.run_at or 0), one.task.seq, one.task.id


def _attempt(meta: Meta) -> Attempt:
    return Attempt(
        number=meta.attempt,
        token=meta.token,
        claimed_at=meta.claimed_at,
        started_at=meta.started_at,
        host=meta.host,
    )
