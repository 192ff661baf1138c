"""People who change their minds: running and waiting tasks are cancelled, finished ones retried, by commands."""

import json
import random
import subprocess
import time
from dataclasses import dataclass, replace

from tests.proof import evidence as files
from tests.proof.evidence import Kind, Request
from tests.proof.instance import Instance
from tests.proof.waiting import boottime

#: Seconds between two requests, on the average.
_PAUSE = 0.4
#: Of the archive so many records are looked at for one that can be retried.
_LOOKED_AT = 20
_RETRYABLE = ("failed", "cancelled", "lost")
_REFUSED = 5


@dataclass(frozen=True)
class _Asking:
    """A command on its way."""

    request: Request
    process: "subprocess.Popen[bytes]"


class Requests:
    """Asks for one thing after the other, and remembers what was answered."""

    def __init__(self, instance: Instance, seed: int) -> None:
        self._instance = instance
        self._random = random.Random(f"requests {seed}")
        self._next = 0.0
        self._asking: _Asking | None = None
        #: What was asked for, but for what was refused: that has changed nothing.
        self.made: list[Request] = []

    @property
    def busy(self) -> bool:
        """Whether somebody still waits for an answer."""
        return self._asking is not None

    def ask(self) -> int | None:
        """Start the next command if it is time for one; returns its pid."""
        if self.busy or boottime() < self._next:
            return None
        self._next = boottime() + self._random.expovariate(1 / _PAUSE)
        found = self._cancel() if self._random.random() < 0.6 else self._retry()
        if found is None:
            return None
        task_id, request = found
        process = self._instance.popen(request.kind, task_id, "--json", stdout=subprocess.PIPE, log="requests.log")
        self._asking = _Asking(request, process)
        return process.pid

    def _cancel(self) -> tuple[str, Request] | None:
        """One that runs, or one that waits."""
        home = self._instance.home
        live = files.live_tasks(home)
        active = {run.task: run.attempt for run in files.active_runs(home) if run.task in live}
        ids = sorted(active) if active and self._random.random() < 0.6 else sorted(live)
        if not ids:
            return None
        task_id = self._random.choice(ids)
        return task_id, _request(Kind.CANCEL, live[task_id], active.get(task_id, 0))

    def _retry(self) -> tuple[str, Request] | None:
        """One that went wrong."""
        paths = files.archive_paths(self._instance.home)
        for path in self._random.sample(paths, min(len(paths), _LOOKED_AT)):
            record = files.archived_at(path)
            if record and record.status in _RETRYABLE:
                return record.id, _request(Kind.RETRY, record.name, record.attempt)
        return None

    def collect(self) -> None:
        """Hear the answer, if it is there."""
        asking = self._asking
        if asking is None or asking.process.poll() is None:
            return
        self._asking = None
        said = _status(asking.process.communicate()[0].decode())
        if said or asking.process.returncode != _REFUSED:
            self.made.append(replace(asking.request, answered=_now(), said=said))


def _request(kind: Kind, name: str, attempt: int) -> Request:
    return Request(kind=kind, name=name, asked=_now(), answered=0, attempt=attempt)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _status(said: str) -> str:
    """The status in a whole answer, even from a command that was killed right after."""
    try:
        rows = json.loads(said)
    except ValueError:
        return ""
    return str(rows[0]["status"]) if rows else ""


def nothing_waits_or_runs(instance: Instance) -> bool:
    """Whether the product itself says that its queue is empty: a retry may be in the store and in no file yet."""
    asked = instance.popen("status", "--json", stdout=subprocess.PIPE, log="status.log")
    said = asked.communicate()[0].decode()
    if asked.returncode != 0:
        return False
    status = json.loads(said)
    return (status["pending"]["total"], status["active"]["slots_used"]) == (0, 0)
