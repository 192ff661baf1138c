"""What people may ask for: submit, cancel, retry, change, pause, resume. The one way for every interface."""

import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from fairlead.base.bell import ring, ring_all
from fairlead.base.clock import Clock
from fairlead.base.errors import RefusedError, UsageError
from fairlead.base.files import sync_directory, sync_file, write_atomically
from fairlead.base.ids import check_name, new_id
from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.accepted import Accepted
from fairlead.queue.admit import Admission, Claimed, Result
from fairlead.queue.archive import Archive, archive_tasks
from fairlead.queue.errors import NoSuchTaskError, StoreBusyError, StoreUnavailableError
from fairlead.queue.instance import Instance
from fairlead.queue.record import record_of, task_of
from fairlead.queue.states import ACTIVE, FINAL, Status
from fairlead.queue.store import Restored, Store
from fairlead.queue.task import Changes, Task
from fairlead.queue.taskfile import Parsed, parse_task

#: Scopes that can be paused.
SCOPES = "`all`, `user:NAME` or `project:NAME`"

#: Ids that are named when a part of one means several.
SHOWN = 4


class Submitted(Struct, frozen=True, kw_only=True):
    """A task file that was taken in, or laid into the spool because the store is away."""

    id: str
    name: str
    spooled: bool = False
    notes: tuple[str, ...] = ()
    warning: str = ""


class Submitting:
    """Takes task files in for a person who waits for the answer."""

    def __init__(self, instance: Instance, owner: str) -> None:
        self.instance = instance
        self.owner = owner
        self.admission = Admission(instance.paths, instance.config, instance.store, instance.clock, instance.log)

    def check(self, name: str, data: bytes) -> Parsed:
        """Read the file as intake would; raises with all that is wrong, and nothing has happened."""
        return check_submission(name, data, self.owner, self.instance.config, self.instance.clock.wall_ms())

    def submit(self, files: Sequence[tuple[str, bytes]]) -> list[Submitted]:
        """Take all files in with one commit, durable when this returns; wrong ones are refused before anything is."""
        for name, data in files:
            self.check(name, data)
        claimed = [self._lay(name, data) for name, data in files]
        try:
            result = self.admission.admit(claimed)
        except (StoreBusyError, StoreUnavailableError):
            return [self._spooled(file) for file in claimed]
        ring(self.instance.paths.bells, "daemon", "queued")
        refusals = [f"{one.error} (the file is at {one.path})" for one in result.rejected]
        refusals += self._refused_by_others(claimed, result)
        if refusals:
            raise RefusedError("\n".join(refusals))
        warnings = {one.id: one.warning for one in result.admitted}
        return [
            Submitted(
                id=file.id,
                name=file.name,
                notes=tuple(note for task_id, note in result.notes if task_id == file.id),
                warning=warnings.get(file.id, ""),
            )
            for file in claimed
        ]

    def _refused_by_others(self, files: Sequence[Claimed], result: Result) -> list[str]:
        """The daemon may have been faster: what it took from us is in the store, or it refused it."""
        told = {one.id for one in result.admitted} | {one.id for one in result.rejected}
        taken = [file for file in files if file.id not in told]
        rejected = self.instance.paths.rejected
        return [f"{file.name} was refused; {rejected} says why." for file in taken if not self._is_known(file.id)]

    def _is_known(self, task_id: str) -> bool:
        try:
            self.instance.store.get(task_id)
        except NoSuchTaskError:
            return False
        return True

    def _lay(self, name: str, data: bytes) -> Claimed:
        """Lay the file where intake finds it, whatever happens to this process."""
        task_id = new_id(self.instance.clock.wall_ms())
        path = self.admission.claim_name(task_id, os.path.basename(name))
        write_atomically(path, data)
        return Claimed(id=task_id, path=path, name=os.path.basename(name))

    def _spooled(self, file: Claimed) -> Submitted:
        """The store is away: the file itself is the acknowledgement, and intake takes it in later, or just has."""
        with suppress(FileNotFoundError):
            sync_file(file.path)
        sync_directory(self.instance.paths.intake)
        return Submitted(id=file.id, name=file.name, spooled=True)


def check_submission(name: str, data: bytes, owner: str, config: Config, now: int) -> Parsed:
    """Read a file that its owner submits as intake would; raises with all that is wrong."""
    limit = config.limits.task_file_bytes
    if len(data) > limit:
        raise UsageError(f"{name}: it has {len(data)} bytes; at most {limit} are allowed.")
    return parse_task(data, name, config.default_user or owner, config, now)


class Operations:
    """Changes of tasks and pauses, with a ring for those who must react."""

    def __init__(self, paths: Paths, store: Store, clock: Clock, log: Log) -> None:
        self.paths = paths
        self.store = store
        self.clock = clock
        self.log = log
        self.archive = Archive(paths.archive)
        self.accepted = Accepted(paths.accepted)

    def cancel(self, task_id: str, *, by: str) -> Task:
        """Cancel a waiting task for good, or ask a running one to stop."""
        task = self.store.cancel(task_id, by=by, now=self.clock.wall_ms())
        self.log.info("cancelled" if task.status in FINAL else "cancel_requested", task=task_id, by=by)
        if task.status in FINAL:
            # Archived at once: nobody must be able to bring it back by rebuilding the store.
            archive_tasks(self.store, self.archive, [task])
            self.accepted.remove(task_id, task.version)
            ring_all(self.paths.bells, "cancelled")
        else:
            ring(self.paths.bells, "watchdog", "cancel")
        return task

    def retry(self, task_id: str, *, by: str) -> Task:
        """Send a failed, cancelled or lost task through the queue again."""
        task = self._known(task_id)
        if task.status in ACTIVE:
            raise RefusedError(f"task {task_id} is {task.status}: cancel it first, or wait for its end.")
        queued = self.store.retry(task_id, by=by, now=self.clock.wall_ms())
        self._write_down(queued)
        self.log.info("retried", task=task_id, user=queued.spec.user, by=by)
        ring(self.paths.bells, "daemon", "queued")
        return queued

    def _known(self, task_id: str) -> Task:
        """The task; one that the store has forgotten comes back from the archive."""
        try:
            return self.store.get(task_id)
        except NoSuchTaskError:
            record = self.archive.read(task_id)
            if record is None:
                raise
        task, attempts = task_of(record)
        restored = replace(task, archived=True)
        self.store.restore([Restored(task=restored, attempts=attempts)], now=self.clock.wall_ms())
        return restored

    def change(self, task_id: str, version: int, changes: Changes, *, by: str) -> Task:
        """Change a waiting task, if nobody else did meanwhile."""
        task = self.store.update(task_id, version, changes, now=self.clock.wall_ms())
        self._write_down(task)
        self.log.info("changed", task=task_id, user=task.spec.user, by=by)
        ring(self.paths.bells, "daemon", "changed")
        return task

    def _write_down(self, task: Task) -> None:
        """The file that a rebuilt store would start from says what is asked for now."""
        if task.status is Status.QUEUED:
            self.accepted.put_record(record_of(task, self.store.attempts(task.id), ()))

    def pause(self, scope: str, *, by: str, reason: str = "") -> None:
        """Start nothing more in that scope; what runs goes on."""
        self.store.pause(check_scope(scope), by=by, reason=reason, now=self.clock.wall_ms())
        self.log.info("paused", scope=scope, by=by, reason=reason)

    def resume(self, scope: str, *, by: str) -> bool:
        """Go on; False if it was not paused."""
        was_paused = self.store.resume(check_scope(scope), by=by, now=self.clock.wall_ms())
        self.log.info("resumed", scope=scope, by=by)
        ring(self.paths.bells, "daemon", "resumed")
        return was_paused


def check_scope(scope: str) -> str:
    """Return the scope, or refuse what is none."""
    kind, separator, name = scope.partition(":")
    if scope == "all":
        return scope
    if kind not in ("user", "project") or not separator:
        raise UsageError(f"{scope!r} cannot be paused or resumed: write {SCOPES}.")
    check_name(name, kind)
    return scope


def find_task(store: Store, archive: Archive, part: str) -> Task:
    """The task that an id, its beginning, or the beginning of its random tail means; from the archive if need be."""
    ids = [part] if part in (found := store.find(part)) else found
    ids = ids or archive.find(part)
    if len(ids) > 1:
        more = ", …" if len(ids) > SHOWN else ""
        raise UsageError(f"{part!r} means {len(ids)} tasks, {', '.join(ids[:SHOWN])}{more}: write more of the id.")
    if ids and (record := None if ids[0] in found else archive.read(ids[0])):
        return task_of(record)[0]
    return store.get(ids[0] if ids else part)
