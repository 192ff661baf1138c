"""Archive marks, forgetting, shares, facts, and putting tasks back from files."""

from collections.abc import Iterable

from fairlead.queue import standing
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_json, as_task
from fairlead.queue.sqlite.claiming import take_lock
from fairlead.queue.states import ACTIVE, Status
from fairlead.queue.store import Lock, Share
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
            before, self.share = self._half_life(), share
            for user, stands, weight in self.db.rows(sql.ALL_USERS):
                new = self._moved(stands, weight, self._weight(user), before, now)
                self.db.run(sql.PUT_USER, {"user": user, "standing": new, "weight": self._weight(user)})
            for user, project, stands, weight in self.db.rows(sql.ALL_LANES):
                new = self._moved(stands, weight, self._project_weight(project), before, now)
                values = {
                    "user": user,
                    "project": project,
                    "standing": new,
                    "weight": self._project_weight(project),
                }
                self.db.run(sql.PUT_LANE, values)
            self.db.run(sql.SET_FACT, ("half_life", str(share.half_life)))

    def _half_life(self) -> float:
        """The half-life that the stored standings were written with."""
        stored = self.facts().get("half_life")
        return self.share.half_life if stored is None else float(stored)

    def _moved(self, stands: float, weight: float, new_weight: float, old_half_life: float, now: int) -> float:
        reweighed = standing.reweigh(stands, weight, new_weight)
        return standing.rebase(reweighed, now / 1000, old_half_life, self.share.half_life)

    def set_facts(self, facts: dict[str, str]) -> None:
        """Remember facts about the instance, for those who read the store without its settings."""
        with self.db.transaction():
            for name, value in facts.items():
                self.db.run(sql.SET_FACT, (name, value))

    def facts(self) -> dict[str, str]:
        """The facts about the instance."""
        return {row[0]: row[1] for row in self.db.rows(sql.FACTS)}

    def restore(self, task: Task, attempts: Iterable[Attempt], lock: Lock | None, *, express: bool, now: int) -> None:
        """Put a task back as the files tell it: `rebuild` is the one caller."""
        with self.db.transaction():
            self.db.run(sql.RESTORE_TASK, _columns(task, now, express=express))
            for attempt in attempts:
                self.db.run(sql.RESTORE_ATTEMPT, _attempt_columns(task.id, attempt))
            self.db.run(sql.TOKEN_AT_LEAST, (task.token,))
            waits = task.status is Status.QUEUED
            ready = waits and max(task.created_at, task.spec.run_at or 0) <= now
            self._enter(task.spec.user, task.spec.project, now, pending=int(waits), ready=int(ready))
            self._shift(task.spec.user, task.spec.project, running=int(task.status in ACTIVE))
            if lock is not None:
                take_lock(self, lock)
            self._log(now, "rebuilt", task, task.status)


def _columns(task: Task, now: int, *, express: bool) -> dict[str, object]:
    since = max(task.created_at, task.spec.run_at or 0)
    return {
        "id": task.id,
        "user": task.spec.user,
        "project": task.spec.project,
        "rank": task.spec.priority,
        "status": task.status,
        "due": int(since <= now),
        "since": since,
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
