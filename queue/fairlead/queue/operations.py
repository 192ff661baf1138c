"""What people may ask for: submit, cancel, retry, change, pause, resume. The one way for every interface."""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from msgspec import UNSET, Struct
from msgspec.structs import replace

from fairlead.base.bell import ring, ring_all
from fairlead.base.clock import Clock
from fairlead.base.errors import FairleadError, RefusedError, UsageError
from fairlead.base.files import remove_all, sync_directory, sync_file
from fairlead.base.ids import check_name, new_id
from fairlead.base.logs import Log
from fairlead.config.paths import Paths
from fairlead.config.schema import Config
from fairlead.queue.accepted import Accepted
from fairlead.queue.admit import Admission, Claimed, Result, claimed_path, read_task
from fairlead.queue.archive import Archive, archive_tasks
from fairlead.queue.errors import NoSuchTaskError, StoreBusyError, StoreUnavailableError
from fairlead.queue.instance import reserve_of
from fairlead.queue.office import Office
from fairlead.queue.record import record_of, task_of
from fairlead.queue.room import refuse_shortage
from fairlead.queue.states import ACTIVE, FINAL, Status
from fairlead.queue.store import Restored, Store
from fairlead.queue.task import Changes, Task, about, is_express
from fairlead.queue.taskfile import Parsed

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

    def __init__(self, instance: Office, owner: str) -> None:
        self.instance = instance
        self.owner = owner
        self.admission = Admission(instance.paths, instance.config, instance.store, instance.clock, instance.log)

    def check(self, name: str, data: bytes) -> Parsed:
        """Read the file as intake would; raises with all that is wrong, and nothing has happened."""
        instance = self.instance
        return check_submission(name, data, self.owner, instance.config, instance.paths, instance.clock.wall_ms())

    def submit(self, files: Sequence[tuple[str, bytes]]) -> list[Submitted]:
        """Take all files in with one commit, durable when this returns, or none of them."""
        refuse_shortage(self.instance.paths.home, reserve_of(self.instance.config))
        for name, data in files:
            self.check(name, data)
        laid: list[Claimed] = []
        try:
            for name, data in files:
                laid.append(self._lay(name, data))
            return self._take_in(laid)
        except BaseException:
            self._take_away(laid)
            raise

    def _take_in(self, laid: Sequence[Claimed]) -> list[Submitted]:
        try:
            result = self.admission.admit_together(laid)
        except (StoreBusyError, StoreUnavailableError):
            return self._spool(laid)
        self._check_room(result)
        ring(self.instance.paths.bells, "daemon", "queued")
        warnings = {one.id: one.warning for one in result.admitted}
        return [
            Submitted(
                id=file.id,
                name=file.name,
                notes=tuple(note for task_id, note in result.notes if task_id == file.id),
                warning=warnings[file.id],
            )
            for file in laid
        ]

    def _check_room(self, result: Result) -> None:
        refusals = list(dict.fromkeys(one.refusal for one in result.admitted if one.refusal))
        if refusals:
            self.instance.log.warning("refused", what="submit", files=len(result.admitted), error=refusals[0])
            nothing = ["nothing was submitted."] if len(result.admitted) > 1 else []
            raise RefusedError("\n".join([*refusals, *nothing]))

    def _lay(self, name: str, data: bytes) -> Claimed:
        """Lay the file where intake takes it up if this process dies after the commit, and only then."""
        task_id = new_id(self.instance.clock.wall_ms())
        return self.admission.lay(self.owner, os.path.basename(name), data, task_id, tentatively=True)

    def _take_away(self, laid: Sequence[Claimed]) -> None:
        """The command has failed: nothing of it may run later. What the store does not know, intake leaves alone."""
        with suppress(FairleadError, OSError):
            remove_all(self._claimed(file) for file in laid)
            remove_all(file.path for file in laid if not self.admission.is_known(file.id))

    def _claimed(self, file: Claimed) -> str:
        """Where intake takes it up, whether or not the store knows it."""
        return claimed_path(self.instance.paths, file.id, file.owner, file.name)

    def _spool(self, laid: Sequence[Claimed]) -> list[Submitted]:
        """The store is away: the files themselves are the acknowledgement, and intake takes them in later."""
        for file in laid:
            sync_file(file.path)
        for file in laid:
            os.rename(file.path, self._claimed(file))
        sync_directory(self.instance.paths.intake)
        return [Submitted(id=file.id, name=file.name, spooled=True) for file in laid]


def check_submission(name: str, data: bytes, owner: str, config: Config, paths: Paths, now: int) -> Parsed:
    """Read a file that its owner submits as intake would; raises with all that is wrong."""
    limit = config.limits.task_file_bytes
    if len(data) > limit:
        raise UsageError(f"{name}: it has {len(data)} bytes; at most {limit} are allowed.")
    return read_task(data, name, owner, config, paths, now)


class Operations:
    """Changes of tasks and pauses, with a ring for those who must react."""

    def __init__(
        self, paths: Paths, store: Store, clock: Clock, log: Log, operators: Callable[[], Collection[str]]
    ) -> None:
        self.paths = paths
        self.store = store
        self.clock = clock
        self.log = log
        #: Asked for only where it matters: most operations need no settings.
        self.operators = operators
        self.archive = Archive(paths.archive)
        self.accepted = Accepted(paths.accepted)

    def cancel(self, task_id: str, *, by: str) -> Task:
        """Cancel a waiting task for good, or ask a running one to stop."""
        task = self.store.cancel(task_id, by=by, now=self.clock.wall_ms())
        self.log.info("cancelled" if task.status in FINAL else "cancel_requested", by=by, **about(task))
        if task.status in FINAL:
            self._archive_at_once(task)
            ring_all(self.paths.bells, "cancelled")
        else:
            ring(self.paths.bells, "watchdog", "cancel")
        return task

    def _archive_at_once(self, task: Task) -> None:
        """Let nobody bring a cancelled task back by rebuilding the store. Without room, the watchdog does it later."""
        try:
            archive_tasks(self.store, self.archive, [task])
            self.accepted.remove(task)
        except OSError as error:
            self.log.warning("archived_later", error=str(error), **about(task))

    def retry(self, task_id: str, *, by: str) -> Task:
        """Send a failed, cancelled or lost task through the queue again."""
        task = self._known(task_id)
        if task.status in ACTIVE:
            raise RefusedError(f"task {task_id} is {task.status}: cancel it first, or wait for its end.")
        queued = self.store.retry(task_id, by=by, now=self.clock.wall_ms())
        self._write_down(queued)
        self.log.info("retried", by=by, **about(queued))
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
        express = is_express(task.spec.user, task.spec.priority, self.operators())
        self.store.restore([Restored(task=restored, attempts=attempts, express=express)], now=self.clock.wall_ms())
        return restored

    def change(self, task_id: str, version: int, changes: Changes, *, by: str) -> Task:
        """Change a waiting task, if nobody else did meanwhile."""
        task = self.store.update(task_id, version, self._authorised(task_id, changes), now=self.clock.wall_ms())
        self._write_down(task)
        self.log.info("changed", by=by, **about(task))
        ring(self.paths.bells, "daemon", "changed")
        return task

    def _authorised(self, task_id: str, changes: Changes) -> Changes:
        """The changes with what they entitle to: an operator's task goes before everybody's while it is critical."""
        if changes.priority is UNSET:
            return replace(changes, express=UNSET)
        user = self.store.get(task_id).spec.user
        return replace(changes, express=is_express(user, changes.priority, self.operators()))

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
