"""Reading: tasks, attempts, events."""

import msgspec

from fairlead.queue.sqlite import statements as sql
from fairlead.queue.sqlite.base import StorePart, as_json, as_task
from fairlead.queue.sqlite.connection import Row
from fairlead.queue.states import Status
from fairlead.queue.store import Filter
from fairlead.queue.task import Attempt, Event, Task

#: Events of everybody that are read at once, unless somebody asks for more.
PORTION = 1000


class Reading(StorePart):
    """get, find, list_tasks, attempts, events, note."""

    def get(self, task_id: str) -> Task:
        """One task."""
        return self._task(task_id)

    def find(self, part: str) -> list[str]:
        """The ids that begin with this, or whose tail does."""
        rows = self.db.rows(sql.FIND, {"part": part}) or self.db.rows(sql.FIND_BY_TAIL, {"part": part})
        return [row[0] for row in rows]

    def list_tasks(self, which: Filter) -> list[Task]:
        """Tasks, newest first."""
        # The indexes of users and projects go by status: where none is asked for, walk down all of them.
        narrowed = which.user is not None or which.project is not None
        statuses = sorted(which.statuses) or (list(Status) if narrowed else [])
        query = sql.newest(user=which.user is not None, project=which.project is not None, statuses=len(statuses))
        values = {"user": which.user, "project": which.project, "limit": which.limit}
        named = {f"status{number}": status for number, status in enumerate(statuses)}
        return [as_task(row) for row in self.db.rows(query, values | named)]

    def attempts(self, task_id: str) -> list[Attempt]:
        """All attempts of a task."""
        return [_as_attempt(row) for row in self.db.rows(sql.ATTEMPTS, (task_id,))]

    def events(self, *, task_id: str | None = None, after: int = 0, limit: int | None = None) -> list[Event]:
        """What happened, in order; where no limit is given, all there is of one task, or the next thousand of all."""
        if task_id is None:
            rows = self.db.rows(sql.EVENTS, (after, PORTION if limit is None else limit))
        else:
            # SQLite sets no limit for a number below zero.
            rows = self.db.rows(sql.EVENTS_OF_TASK, (task_id, after, -1 if limit is None else limit))
        return [_as_event(row) for row in rows]

    def last_event(self) -> int:
        """The number of the newest event; 0 if there is none."""
        last: int | None = self.db.value(sql.LAST_EVENT)
        return last or 0

    def note(self, *events: Event) -> None:
        """Write events down, with one commit."""
        with self.db.transaction():
            for event in events:
                values = (event.at, event.task_id, event.user, event.event, event.status, as_json(event.detail))
                self.db.run(sql.ADD_EVENT, values)


def _as_attempt(row: Row) -> Attempt:
    status = Status(row[5]) if row[5] else None
    return Attempt(
        number=row[0],
        token=row[1],
        claimed_at=row[2],
        started_at=row[3],
        finished_at=row[4],
        status=status,
        reason=row[6],
        error=row[7],
        exit_code=row[8],
        signal=row[9],
        host=row[10],
    )


def _as_event(row: Row) -> Event:
    return Event(
        seq=row[0],
        at=row[1],
        task_id=row[2],
        user=row[3],
        event=row[4],
        status=Status(row[5]) if row[5] else None,
        detail=msgspec.json.decode(row[6]),
    )
