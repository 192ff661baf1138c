"""Entering the queue, and leaving it without having run."""

from collections import Counter
from collections.abc import Sequence

from msgspec import UNSET
from msgspec.structs import replace

from fairlead.queue.errors import StaleVersionError
from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_json, is_due, since
from fairlead.queue.states import ACTIVE, Status, check_retry
from fairlead.queue.store import Admitted, Submission
from fairlead.queue.task import Changes, Spec, Task

#: Come-due tasks are promoted in portions, so that one commit stays small.
PORTION = 1000


class Admission(StorePart):
    """add, promote_due, next_due, cancel, retry, update."""

    def add(
        self, submissions: Sequence[Submission], *, now: int, warn_at: int, refuse_at: int, together: bool = False
    ) -> list[Admitted]:
        """Take tasks in; a known id is a no-op. Together: all of them, or none if there is no room for one."""
        with self.db.transaction():
            pending = {user: self._pending(user) for user in {item.spec.user for item in submissions}}
            if together and (refusal := self._lack_of_room(submissions, pending, refuse_at)):
                return [Admitted(id=item.id, new=False, refusal=refusal) for item in submissions]
            clock = self._clock(now)
            results = [self._add_one(item, now, clock, pending, refuse_at) for item in submissions]
            self._enter_all([item for item, result in zip(submissions, results, strict=True) if result.new], now)
        return [_warned(item, result, pending, warn_at) for item, result in zip(submissions, results, strict=True)]

    def _pending(self, user: str) -> int:
        return self.db.value(sql.PENDING_OF_USER, (user,)) or 0

    def _lack_of_room(self, submissions: Sequence[Submission], pending: dict[str, int], refuse_at: int) -> str:
        """Why these cannot all enter; nothing if they can."""
        new = {item.id: item.spec.user for item in submissions if not self.db.value(sql.TASK, (item.id,))}
        return " ".join(
            _no_room(user, pending[user], more, refuse_at)
            for user, more in Counter(new.values()).items()
            if pending[user] + more > refuse_at
        )

    def _add_one(self, item: Submission, now: int, clock: int, pending: dict[str, int], refuse_at: int) -> Admitted:
        spec = item.spec
        if self.db.value(sql.TASK, (item.id,)):
            return Admitted(id=item.id, new=False)
        if pending[spec.user] >= refuse_at:
            return Admitted(id=item.id, new=False, refusal=_no_room(spec.user, pending[spec.user], 1, refuse_at))
        self.db.run(sql.ADD_TASK, _columns(item, now, clock))
        self.db.run(
            sql.ADD_EVENT,
            (
                now,
                item.id,
                spec.user,
                "queued",
                Status.QUEUED,
                as_json({"priority": spec.priority, "source": spec.source}),
            ),
        )
        pending[spec.user] += 1
        return Admitted(id=item.id)

    def _enter_all(self, items: Sequence[Submission], now: int) -> None:
        """One change of accounts per project, however many tasks it gets."""
        pending: Counter[tuple[str, str]] = Counter()
        ready: Counter[tuple[str, str]] = Counter()
        for item in items:
            lane = (item.spec.user, item.spec.project)
            pending[lane] += 1
            ready[lane] += is_due(item.spec, now)
        for (user, project), count in pending.items():
            self._enter(user, project, now, pending=count, ready=ready[user, project])

    def promote_due(self, now: int) -> int:
        """Let tasks whose `run_at` has come take part; returns how many."""
        if (first := self.next_due()) is None or first > now:
            return 0
        with self.db.transaction():
            rows = self.db.rows(sql.COME_DUE, (now, PORTION))
            for seq, user, project in rows:
                self._write(sql.MAKE_DUE, (self._last_place(), seq))
                self._enter(user, project, now, pending=0, ready=1)
        return len(rows)

    def _last_place(self) -> int:
        """Behind everybody who waits: who has waited longer must not be hidden."""
        place: int = self.db.value(sql.LAST_PLACE)
        return place

    def next_due(self) -> int | None:
        """When the next waiting `run_at` comes."""
        due: int | None = self.db.value(sql.NEXT_DUE)
        return due

    def cancel(self, task_id: str, *, by: str, now: int) -> Task:
        """Cancel a queued task, or note the request on an active one; returns the task as it is then."""
        with self.db.transaction():
            task = self._task(task_id)
            if task.status in ACTIVE:
                self._write(sql.REQUEST_CANCEL, {"id": task_id, "by": by, "now": now})
                self._log(now, "cancel_requested", task, task.status, by=by)
            else:
                self._cancel_queued(task, by, now)
            return self._task(task_id)

    def retry(self, task_id: str, *, by: str, now: int) -> Task:
        """Send a failed, cancelled or lost task through the queue again."""
        with self.db.transaction():
            task = self._task(task_id)
            check_retry(task_id, task.status)
            due = int(is_due(task.spec, now))
            values = {"due": due, "since": since(task.spec, now, now, self._clock(now)), "place": self._last_place()}
            self._write(sql.RETRY, values | {"id": task_id, "now": now})
            self._enter(task.spec.user, task.spec.project, now, pending=1, ready=due)
            self._log(now, "retried", task, Status.QUEUED, by=by, after=task.status)
            return self._task(task_id)

    def update(self, task_id: str, version: int, changes: Changes, *, now: int) -> Task:
        """Change a queued task, if nobody else did meanwhile."""
        with self.db.transaction():
            task = self._task(task_id)
            if task.version != version or task.status is not Status.QUEUED:
                raise StaleVersionError(
                    f"task {task_id} is {task.status} at version {task.version}, not queued at version {version}: "
                    "read it again, then change it."
                )
            self._change(task, changes, now)
            return self._task(task_id)

    def _change(self, task: Task, changes: Changes, now: int) -> None:
        spec = _changed(task.spec, changes)
        [(starts, was_due, place)] = self.db.rows(sql.DUE_OF_TASK, (task.id,))
        due = was_due
        if spec.run_at != task.spec.run_at:
            starts, due = since(spec, now, now, self._clock(now)), int(is_due(spec, now))
            place = self._last_place()
        values = {"id": task.id, "version": task.version, "now": now, "spec": as_json(spec)}
        values |= {"rank": spec.priority, "since": starts, "due": due, "place": place}
        express = None if changes.express is UNSET else int(changes.express)
        self._write(sql.CHANGE, values | {"express": express})
        self._enter(spec.user, spec.project, now, pending=0, ready=due - was_due)
        title = {"title": spec.title} if spec.title != task.spec.title else {}
        self._log(now, "changed", task, Status.QUEUED, priority=spec.priority, run_at=spec.run_at, **title)


def _columns(item: Submission, now: int, clock: int) -> dict[str, object]:
    return {
        "id": item.id,
        "user": item.spec.user,
        "project": item.spec.project,
        "rank": item.spec.priority,
        "due": int(is_due(item.spec, now)),
        "since": since(item.spec, item.created_at, now, clock),
        "express": int(item.express),
        "created_at": item.created_at,
        "now": now,
        "spec": as_json(item.spec),
    }


def _no_room(user: str, waiting: int, more: int, refuse_at: int) -> str:
    coming = f", and {more} more come at once" if more > 1 else ""
    return (
        f"user {user} has {waiting} tasks waiting{coming}, limits.pending_max is {refuse_at}: "
        "wait for some to finish, or cancel some."
    )


def _warned(item: Submission, result: Admitted, pending: dict[str, int], warn_at: int) -> Admitted:
    user = item.spec.user
    if not result.new or pending[user] < warn_at:
        return result
    return replace(result, warning=f"user {user} has {pending[user]} tasks waiting (limits.pending_warn is {warn_at}).")


def _changed(spec: Spec, changes: Changes) -> Spec:
    given = {name: getattr(changes, name) for name in changes.__struct_fields__ if name != "express"}
    return replace(spec, **{name: value for name, value in given.items() if value is not UNSET})
