"""Archive marks, forgetting, shares, facts, and putting tasks back from files."""

from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.queue import standing
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_json, as_task, is_due, since
from fairlead.queue.states import ACTIVE, Status
from fairlead.queue.store import Lock, Restored, Share
from fairlead.queue.task import Attempt, Task


class Keeping(StorePart):
    """unarchived, mark_archived, forget, set_shares, set_facts, restore."""

    def unarchived(self, limit: int) -> list[Task]:
        """Finished tasks whose archive file is still to be written."""
        return [as_task(row) for row in self.db.rows(sql.UNARCHIVED, (limit,))]

    def mark_archived(self, versions: dict[str, int]) -> None:
        """Their archive files are durable; a task that was retried meanwhile is left alone."""
        with self.db.transaction():
            for task_id, version in versions.items():
                self.db.run(sql.MARK_ARCHIVED, (task_id, version))

    def forget(self, before: int, limit: int) -> list[str]:
        """Drop archived tasks that finished before then; returns their ids."""
        with self.db.transaction():
            ids = [row[0] for row in self.db.rows(sql.FORGETTABLE, (before, limit))]
            for task_id in ids:
                self.db.run(sql.FORGET_TASK, (task_id,))
                self.db.run(sql.FORGET_ATTEMPTS, (task_id,))
                self.db.run(sql.FORGET_EVENTS, (task_id,))
            self.db.run(sql.FORGET_OLD_LOCKS, (before,))
            self.db.run(sql.FORGET_OLD_EVENTS, (before,))
        return ids

    def set_shares(self, share: Share, *, now: int) -> None:
        """Use these weights and this half-life from now on."""
        with self.db.transaction():
            t, half_lives = self._clock(now) / 1000, (self._half_life(), share.half_life)
            for user, stands, old in self.db.rows(sql.ALL_USERS):
                weight = share.weight(user)
                moved = standing.rebase(standing.reweigh(stands, old, weight), t, *half_lives)
                self.db.run(sql.PUT_USER, {"user": user, "standing": moved, "weight": weight})
            for user, project, stands, old in self.db.rows(sql.ALL_LANES):
                weight = share.project_weight(project)
                moved = standing.rebase(standing.reweigh(stands, old, weight), t, *half_lives)
                self.db.run(sql.PUT_LANE, {"user": user, "project": project, "standing": moved, "weight": weight})
            self.db.run(sql.SET_FACT, ("half_life", str(share.half_life)))
        self.share = share

    def set_facts(self, facts: dict[str, str]) -> None:
        """Remember facts about the instance, for those who read the store without its settings."""
        with self.db.transaction():
            for name, value in facts.items():
                self.db.run(sql.SET_FACT, (name, value))

    def facts(self) -> dict[str, str]:
        """The facts about the instance."""
        return {row[0]: row[1] for row in self.db.rows(sql.FACTS)}

    def reserve_tokens(self, count: int) -> None:
        """Leave out so many tokens: nobody can tell any more whether they were given out."""
        with self.db.transaction():
            self.db.run(sql.SKIP_TOKENS, (count,))

    def restore(self, items: Sequence[Restored], *, now: int) -> list[bool]:
        """Put tasks back as the files tell them, with the locks their runs hold; False where one is known already."""
        with self.db.transaction():
            return [self._restore_one(item, now) for item in items]

    def _restore_one(self, item: Restored, now: int) -> bool:
        task = item.task
        if self.db.value(sql.TASK, (task.id,)):
            return False
        self.db.run(sql.RESTORE_TASK, _columns(task, now, self._clock(now), express=item.express))
        for attempt in item.attempts:
            self.db.run(sql.RESTORE_ATTEMPT, _attempt_columns(task.id, attempt))
        self.db.run(sql.TOKEN_AT_LEAST, (task.token,))
        waits = task.status is Status.QUEUED
        ready = waits and is_due(task.spec, now)
        self._enter(task.spec.user, task.spec.project, now, pending=int(waits), ready=int(ready))
        self._shift(task.spec.user, task.spec.project, running=int(task.status in ACTIVE))
        if item.lock is not None:
            self._take_lock(self._guarding(item.lock))
        self._log(now, "rebuilt", task, task.status)
        return True

    def _guarding(self, lock: Lock) -> Lock:
        """A run's lock; under a name of its own where another run of that user has come back first."""
        taken = self.db.value(sql.LOCK_BY_NAME, (lock.name,))
        return replace(lock, name=f"task:{lock.task_id}") if taken else lock


def _columns(task: Task, now: int, clock: int, *, express: bool) -> dict[str, object]:
    return {
        "id": task.id,
        "user": task.spec.user,
        "project": task.spec.project,
        "rank": task.spec.priority,
        "status": task.status,
        "due": int(is_due(task.spec, now)),
        "since": since(task.spec, task.created_at, now, clock),
        "express": int(express),
        "version": task.version,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "started_at": task.started_at,
        "finished_at": task.finished_at,
        "attempt": task.attempt,
        "token": task.token,
        "cancel": task.cancel,
        "archived": int(task.archived),
        "spec": as_json(task.spec),
        "outcome": as_json(task.outcome) if task.outcome else None,
    }


def _attempt_columns(task_id: str, attempt: Attempt) -> dict[str, object]:
    names = [name for name in attempt.__struct_fields__ if name != "run_dir"]
    return {"task_id": task_id} | {name: getattr(attempt, name) for name in names}
