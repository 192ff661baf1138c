"""Changing: tasks, and what is paused."""

import json
from collections.abc import Mapping

from msgspec import UNSET

from fairlead.base.bell import ring
from fairlead.base.errors import RefusedError, UsageError
from fairlead.config.schema import Agent, Config
from fairlead.desk.parts import Data, DeskPart
from fairlead.desk.usage import living_supervisor
from fairlead.desk.views import brief
from fairlead.queue.operations import check_scope
from fairlead.queue.record import spec_record
from fairlead.queue.rights import Deed, check_pause, check_resume
from fairlead.queue.states import ACTIVE, FINAL, RETRYABLE, Status
from fairlead.queue.task import Changes
from fairlead.queue.taskfile import Parsed, TaskFileError, parse_task
from fairlead.queue.why import Why

#: What can be changed of a waiting task.
KEYS = ("priority", "run_at", "title")
#: A task file needs an agent to be one; which does not matter here.
_SETTINGS = Config(agents={Config().default_agent: Agent(command=("true",))})


class Changing(DeskPart):
    """cancel, retry, requeue, change, pause, resume."""

    def cancel(self, part: str) -> Data:
        """Cancel a waiting task, or ask a running one to stop."""
        task = self.allow(Deed.CANCEL, self.task(part))
        if task.status in FINAL:
            again = f"; `fairlead retry {task.id}` runs it again" if task.status in RETRYABLE else ""
            raise RefusedError(f"task {task.id} cannot be cancelled: it has ended already ({task.status}){again}.")
        return brief(self.operations().cancel(task.id, by=self.caller.name))

    def retry(self, part: str) -> Data:
        """Send a failed, cancelled or lost task through the queue again."""
        task = self.allow(Deed.RETRY, self.task(part))
        return brief(self.operations().retry(task.id, by=self.caller.name))

    # ------------------------------------------------------------------ requeue

    def look_at_run(self, part: str) -> bool:
        """Have the watchdog look at a task that seems stuck; False if there is nothing to look at, or it lives."""
        task = self.allow(Deed.REQUEUE, self.task(part))
        if task.status not in ACTIVE or living_supervisor(self.office.paths, task) is not None:
            return False
        ring(self.office.paths.bells, "watchdog", "look")
        return True

    def requeue(self, part: str) -> Data:
        """Bring a task back into the queue whose run is over; a living one is left alone."""
        task = self.allow(Deed.REQUEUE, self.task(part))
        if task.status in ACTIVE:
            office = self.office
            answer = Why(office.paths, office.store, office.clock).answer(task)
            raise RefusedError(
                f"task {task.id} is left alone: {answer.summary}; `fairlead cancel {task.id}` ends it, then retry it."
            )
        if task.status is not Status.QUEUED:
            return brief(self.operations().retry(task.id, by=self.caller.name)) | {"was": task.status.value}
        return brief(task) | {"was": task.status.value}

    # ------------------------------------------------------------------ change

    def change(self, part: str, given: Mapping[str, str | int], version: int | None = None) -> Data:
        """Change priority, time or title of a waiting task."""
        task = self.task(part)
        for deed in sorted({_DEEDS[key] for key in given}):
            self.allow(deed, task)
        parsed = _parsed(given, self.office.clock.wall_ms())
        if task.status is not Status.QUEUED:
            raise RefusedError(f"task {task.id} is {task.status}: only a task that waits can be changed.")
        changes = Changes(**{key: getattr(parsed.spec, key) if key in given else UNSET for key in KEYS})
        read = task.version if version is None else version
        changed = self.operations().change(task.id, read, changes, by=self.caller.name)
        spec = spec_record(changed.spec)
        return (
            {"id": changed.id, "version": changed.version}
            | {key: spec[key] for key in KEYS}
            | {"notes": list(parsed.notes)}
        )

    # ------------------------------------------------------------------ pauses

    def pauses(self) -> list[Data]:
        """What is paused."""
        return [{"scope": one.scope, "by": one.by, "reason": one.reason} for one in self.office.store.pauses()]

    def pause(self, scope: str, reason: str = "") -> Data:
        """Start nothing more in a scope."""
        check_pause(self.caller, check_scope(scope))
        check_resume(self.caller, scope, self._paused_by(scope))  # or his own pause would replace an operator's
        self.operations().pause(scope, by=self.caller.name, reason=reason)
        return {"paused": scope}

    def resume(self, scope: str) -> Data:
        """Go on in a scope."""
        check_resume(self.caller, check_scope(scope), self._paused_by(scope))
        return {"resumed": scope, "was_paused": self.operations().resume(scope, by=self.caller.name)}

    def _paused_by(self, scope: str) -> str | None:
        return next((one.by for one in self.office.store.pauses() if one.scope == scope), None)


_DEEDS = {"priority": Deed.REORDER, "run_at": Deed.CHANGE, "title": Deed.CHANGE}


def _parsed(given: Mapping[str, str | int], now: int) -> Parsed:
    """What was given, by the rules of a task file; now is no time at all."""
    if not given:
        raise UsageError("say what to change: priority, run_at or title.")
    rest = {key: value for key, value in given.items() if (key, value) != ("run_at", "now")}
    try:
        return parse_task(json.dumps({"prompt": "-"} | rest).encode(), "change.json", "nobody", _SETTINGS, now)
    except TaskFileError as error:
        raise UsageError(error.without_place) from error
