"""Finished tasks leave the live queue: written to the archive first, then their files are tidied away."""

import os
from contextlib import suppress
from itertools import takewhile

from fairlead.base.bell import ring
from fairlead.base.ids import is_id
from fairlead.conductor import rundir
from fairlead.conductor.liveness import Void, void
from fairlead.conductor.meta import note_release
from fairlead.queue.accepted import Accepted
from fairlead.queue.archive import Archive, archive_tasks
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import Instance
from fairlead.queue.states import ACTIVE, FINAL, IllegalTransitionError, Status
from fairlead.queue.task import NEVER_STARTED, Task, about

#: Tasks that are archived with one pass over the disk.
BATCH = 200


class Archiving:
    """Moves finished tasks from the queue to the archive."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.store = instance.store
        self.archive = Archive(instance.paths.archive)
        self.accepted = Accepted(instance.paths.accepted)

    def archive_finished(self) -> bool:
        """Write finished tasks down durably, and only then let go of their files; True if there may be more."""
        found = self.store.unarchived(BATCH)
        tasks = [task for task in found if not self.run_again(task)]
        archive_tasks(self.store, self.archive, tasks)
        for task in tasks:
            self.tidy(task)
        return len(found) == BATCH

    def run_again(self, task: Task) -> bool:
        """A lost task that says that running it twice does no harm is queued again, unless somebody wants it to end."""
        if task.status is not Status.LOST or not task.spec.idempotent or task.cancel is not None:
            return False
        if self._losses_in_a_row(task) > self.instance.config.limits.reruns:
            return False
        try:
            self.store.retry(task.id, by="fairlead", now=self.instance.clock.wall_ms())
        except (IllegalTransitionError, NoSuchTaskError):
            return False  # somebody else was faster: it is not lost any more
        self._put_away_runs(task)
        self.instance.log.info("run_again", **about(task))
        ring(self.instance.paths.bells, "daemon", "queued")
        return True

    def _losses_in_a_row(self, task: Task) -> int:
        """How often it was lost since it last ended otherwise; attempts that never started say nothing."""
        ends = (one.status for one in reversed(self.store.attempts(task.id)) if one.reason != NEVER_STARTED)
        return sum(1 for _ in takewhile(lambda status: status is Status.LOST, ends))

    def tidy(self, task: Task) -> None:
        """The task is archived: its accepted file goes, its run directories move to finished/."""
        self.accepted.remove(task)
        self._put_away_runs(task)

    def _put_away_runs(self, task: Task) -> None:
        is_held = any(lock.task_id == task.id for lock in self.store.locks())
        for number in range(1, task.attempt + 1):
            if not is_held:
                self._note_release(task, number)
            self._put_away(task, number)

    def _note_release(self, task: Task, number: int) -> None:
        with suppress(OSError):  # it is gone, or the agent put something else in its place
            note_release(rundir.active_dir(self.instance.paths.conductor, task.spec.project, task.id, number))

    def _put_away(self, task: Task, number: int) -> None:
        """Move a run directory to finished/. If it is there already, this one was made by somebody who came late."""
        where = (self.instance.paths.conductor, task.spec.project, task.id, number)
        if os.path.lexists(rundir.finished_dir(*where)):
            rundir.discard(rundir.active_dir(*where))
        else:
            rundir.finish(*where)

    # ------------------------------------------------------------------ after a crash

    def clear_left_overs(self) -> None:
        """Put away run directories whose attempt is over: a crash came between the record and the tidying."""
        for run_dir in list(rundir.all_active(self.instance.paths.conductor)):
            task_id, _, number = os.path.basename(run_dir).rpartition(".")
            if is_id(task_id) and number.isdigit():
                self._clear_left_over(run_dir, task_id, int(number))

    def _clear_left_over(self, run_dir: str, task_id: str, number: int) -> None:
        try:
            task = self.store.get(task_id)
        except NoSuchTaskError:
            return  # not this store's; `doctor` tells about it
        is_current = number == task.attempt
        if (is_current and task.status in ACTIVE) or (is_current and task.status in FINAL and not task.archived):
            return
        came = void(run_dir)
        if came is Void.NEVER_STARTED:
            rundir.discard(run_dir)
        elif came is Void.STARTED and (task.status in FINAL or not is_current):
            self._put_away(task, number)
