"""What is old goes: records, run directories, refused files, rotated logs. Only what is provably safe to delete."""

import math
import os
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct, field

from fairlead.base.errors import FairleadError
from fairlead.base.files import folders_in, is_temporary, names_in, remove, remove_tree
from fairlead.base.ids import created_at, is_id
from fairlead.conductor.rundir import finished_dir
from fairlead.queue.accepted import Accepted, AcceptedFile
from fairlead.queue.archive import Archive
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import Instance
from fairlead.queue.record import task_of
from fairlead.queue.task import Task

#: Tasks that are forgotten with one commit.
BATCH = 500
DAY_MS = 86_400_000


class Pruned(Struct, kw_only=True):
    """What was deleted, by kind, and what was kept although it is old, and why."""

    dry_run: bool
    deleted: dict[str, int] = field(default_factory=dict)
    kept: list[tuple[str, str]] = field(default_factory=list)
    #: There is more to delete than was asked for at once.
    more: bool = False


class Retention:
    """Prunes one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.store = instance.store
        self.archive = Archive(instance.paths.archive)
        self.accepted = Accepted(instance.paths.accepted)
        self._to_look_at = self.accepted.files()
        #: Run directories that go, or would go, with this pruning.
        self._going: set[str] = set()
        self._most = math.inf

    def prune(self, days: float | None = None, *, dry_run: bool = False, most: int | None = None) -> Pruned:
        """Delete what is older than the settings, or `days`, say; with `dry_run` only tell.

        At most so many of each kind are deleted, and of the accepted files looked at: the others next time, since a
        million may be there, and ends are to be recorded in between.
        """
        age = self.instance.config.retention.days if days is None else days
        before = self.instance.clock.wall_ms() - int(age * DAY_MS)
        report = Pruned(dry_run=dry_run)
        self._going.clear()
        self._most = math.inf if most is None else most
        self._prune_runs(before, report)
        self._prune_archive(before, report)
        self._prune_accepted(report, most)
        self._prune_folder("rejected", self.instance.paths.rejected, before, report)
        self._prune_folder("lock_files_aside", os.path.join(self.instance.paths.locks, "aside"), before, report)
        self._prune_folder("logs", self.instance.paths.logs, before, report)
        self._prune_half_written(report)
        if not dry_run:
            self._forget(before, report)
        if report.deleted and not dry_run:
            self.instance.log.info("pruned", **report.deleted)
        return report

    # ------------------------------------------------------------------ run directories

    def _prune_runs(self, before: int, report: Pruned) -> None:
        for run_dir in finished_runs(self.instance.paths.conductor):
            task_id = os.path.basename(run_dir).rpartition(".")[0]
            if why := self._why_keep_run(task_id, run_dir, before):
                report.kept += [(run_dir, why)] if why != "young" else []
                continue
            if self._is_enough(report, "runs"):
                return
            _count(report, "runs")
            self._going.add(run_dir)
            if not report.dry_run:
                remove_tree(run_dir)

    def _why_keep_run(self, task_id: str, run_dir: str, before: int) -> str:
        if _changed(run_dir) >= before:
            return "young"
        task = self._task(task_id)
        if task is not None and not task.archived:
            return f"its task is {task.status} and not archived"
        return "" if task is not None or self._is_archived(task_id) else "its task has no record in the archive"

    def _is_archived(self, task_id: str) -> bool:
        return is_id(task_id) and os.path.exists(self.archive.path(task_id))

    # ------------------------------------------------------------------ records

    def _prune_archive(self, before: int, report: Pruned) -> None:
        """Records go by the time in them, not by the file's: a copy or a restore does not change it."""
        for task_id in self.archive.ids():
            if is_id(task_id) and _made(task_id) >= before:
                return  # ids sort by time, and no task ends before it was made
            if why := self._why_keep_record(task_id, before):
                report.kept += [(task_id, why)] if why != "young" else []
                continue
            if self._is_enough(report, "records"):
                return
            _count(report, "records")
            if not report.dry_run:
                remove(self.archive.path(task_id))

    def _why_keep_record(self, task_id: str, before: int) -> str:
        try:
            recorded, _ = task_of(self.archive.read(task_id) or {})
        except (FairleadError, ValueError, OSError, AttributeError, KeyError, TypeError) as error:
            return f"it cannot be read: {error!r}"
        if recorded.finished_at is None:
            return "it does not say when its task ended"
        task = self._task(task_id)
        if task is not None and not task.archived:
            return f"its task is {task.status} again"
        return "young" if recorded.finished_at >= before or self._has_runs(recorded) else ""

    def _has_runs(self, task: Task) -> bool:
        """Whether directories of its runs are kept: without the record nobody could tell that they may go."""
        where = (self.instance.paths.conductor, task.spec.project, task.id)
        runs = {finished_dir(*where, number) for number in range(1, task.attempt + 1)}
        return any(map(os.path.exists, runs - self._going))

    # ------------------------------------------------------------------ files

    def _prune_accepted(self, report: Pruned, most: int | None) -> None:
        """Accepted files of archived tasks: a crash came between the archive and the tidying."""
        for file in self._next_accepted(most):
            self._prune_if_archived(file.task_id, 0, file.path, report)
        for task_id, version, path in self.accepted.records():
            self._prune_if_archived(task_id, version, path, report)
        if not report.dry_run:
            self.accepted.remove_empty_folders()

    def _next_accepted(self, most: int | None) -> list[AcceptedFile]:
        found = list(islice(self._to_look_at, most))
        if most is None or len(found) < most:
            self._to_look_at = self.accepted.files()
        return found

    def _prune_if_archived(self, task_id: str, version: int, path: str, report: Pruned) -> None:
        task = self._task(task_id)
        if task is not None and task.archived and version <= task.version:
            _count(report, "accepted")
            if not report.dry_run:
                remove(path)

    def _prune_folder(self, kind: str, folder: str, before: int, report: Pruned) -> None:
        for name in names_in(folder):
            path = os.path.join(folder, name)
            if _changed(path) >= before or path in (self.instance.paths.log_file, self.instance.paths.error_log):
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                report.kept.append((path, "it is a directory"))
                continue
            if self._is_enough(report, kind):
                return
            _count(report, kind)
            if not report.dry_run:
                remove(path)

    def _prune_half_written(self, report: Pruned) -> None:
        """Files that somebody was writing when he was killed: after a day nobody is writing them any more."""
        yesterday = self.instance.clock.wall_ms() - DAY_MS
        paths = self.instance.paths
        months = (os.path.join(paths.archive, name) for name in names_in(paths.archive))
        for folder in (paths.home, paths.locks, paths.intake, self.accepted.changed, *filter(os.path.isdir, months)):
            for name in filter(is_temporary, names_in(folder)):
                path = os.path.join(folder, name)
                if _changed(path) < yesterday:
                    _count(report, "half_written")
                    if not report.dry_run:
                        remove(path)

    # ------------------------------------------------------------------ rows

    def _forget(self, before: int, report: Pruned) -> None:
        while not self._is_enough(report, "rows") and (ids := self.store.forget(before, BATCH)):
            _count(report, "rows", len(ids))

    def _is_enough(self, report: Pruned, kind: str) -> bool:
        """Whether as many of this kind have gone as may go at once."""
        is_enough = report.deleted.get(kind, 0) >= self._most
        report.more = report.more or is_enough
        return is_enough

    def _task(self, task_id: str) -> Task | None:
        try:
            return self.store.get(task_id)
        except NoSuchTaskError:
            return None


def _count(report: Pruned, kind: str, more: int = 1) -> None:
    report.deleted[kind] = report.deleted.get(kind, 0) + more


def finished_runs(conductor: str) -> Iterator[str]:
    """Every run directory that is kept after its end, of each project the oldest first."""
    for project in folders_in(conductor):
        place = os.path.join(project, "finished")
        yield from (os.path.join(place, name) for name in names_in(place))


def _changed(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 1 << 62  # gone: nothing to delete


def _made(task_id: str) -> int:
    return created_at(task_id, otherwise=0)
