"""The desk at the other end of a socket: the same methods, for those who may not open the store themselves."""

import errno
import json
import os
import select
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

from fairlead.base.errors import FairleadError, NotFoundError, RefusedError, UnavailableError, UsageError
from fairlead.config.paths import Paths
from fairlead.desk.output import Piece
from fairlead.desk.submitting import File
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.rights import ForbiddenError
from fairlead.queue.store import Holder

Data = dict[str, Any]
#: Longer than the service lets anybody wait.
_PATIENCE = 120.0
#: What the service says an error is, and what it is here. Others are known by their exit code.
_KINDS = {"no_such_task": NoSuchTaskError, "forbidden": ForbiddenError}
_CLASSES = {one.exit_code: one for one in (FairleadError, UsageError, NotFoundError, RefusedError, UnavailableError)}


class NoServiceError(UnavailableError):
    """Nobody listens at the socket of the system's instance."""


class Remote:
    """One connection, made when it is first needed. The kernel tells the service who we are."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self._connection = _Connection(paths.api)

    # ------------------------------------------------------------------ looking

    def status(self) -> Data:
        """Slots, what waits, who runs, who holds locks, which services run."""
        return self._get("status")

    def capacity(self) -> Data:
        """Slots and who uses them."""
        return self._get("capacity")

    def list_tasks(
        self, statuses: Collection[str] = (), user: str | None = None, project: str | None = None, limit: int = 100
    ) -> list[Data]:
        """Tasks, newest first."""
        query = {"status": ",".join(statuses) or None, "user": user, "project": project, "limit": limit}
        return self._items("tasks", query)

    def find(self, part: str) -> Data:
        """The task that a part of an id means, without attempts and events."""
        return self._get(_task(part), {"brief": "true"})

    def show(self, part: str) -> Data:
        """Everything about a task that one may know."""
        return self._get(_task(part))

    def why(self, part: str) -> Data:
        """Why a task is not running."""
        return self._get(_task(part, "why"))

    def end(self, part: str) -> Data:
        """How a task has ended, or that it has not."""
        return self._get(_task(part, "end"))

    def events(self, after: int = 0, limit: int | None = None, task: str | None = None) -> list[Data]:
        """What happened after an event."""
        return self._items(_events(task), {"after": after, "limit": limit})

    def event_before(self, last: int, task: str | None = None) -> int:
        """The number of the event before the last so many ones."""
        answer = self._get(_events(task), {"last": last, "limit": 1})
        return int(answer["items"][0]["seq"]) - 1 if answer["items"] else int(answer["last"])

    def wait_for_event(self, after: int, seconds: float) -> int:
        """Wait until something happens after an event, or the time is up; returns the number of the newest."""
        query = {"after": after, "limit": 1, "wait": f"{seconds:.3f}"}
        return int(self._get("events", query)["last"])

    def logs(self, part: str, stream: str = "stdout", attempt: int | None = None, offset: int = 0) -> Piece:
        """What an attempt wrote from an offset on."""
        answer = self._connection.ask("GET", _task(part, f"logs/{stream}"), {"attempt": attempt, "offset": offset})
        data, headers = answer.read(), answer.headers
        return Piece(
            data=data,
            attempt=int(headers["Fairlead-Attempt"]),
            next=int(headers["Fairlead-Next-Offset"]),
            is_over=headers["Fairlead-Is-Over"] == "true",
        )

    def locks(self) -> Data:
        """Every lock that is held, and the lock files that somebody else made."""
        return self._get("locks")

    def past_locks(self, limit: int = 50) -> list[Data]:
        """The last released locks."""
        return self._items("past-locks", {"limit": limit})

    # ------------------------------------------------------------------ changing

    def submit(self, files: Sequence[File]) -> list[Data]:
        """Have all files taken in, or none of them."""
        return self._hand_in("tasks", files)

    def foretell(self, files: Sequence[File]) -> list[Data]:
        """What would become of each file."""
        return self._hand_in("dry-run", files)

    def _hand_in(self, path: str, files: Sequence[File]) -> list[Data]:
        given = [{"name": file.name, "content": _text(file), "made": file.made} for file in files]
        items: list[Data] = self._post(path, {"files": given})["items"]
        return items

    def cancel(self, part: str) -> Data:
        """Cancel a waiting task, or ask a running one to stop."""
        return self._post(_task(part, "cancel"))

    def retry(self, part: str) -> Data:
        """Send a failed, cancelled or lost task through the queue again."""
        return self._post(_task(part, "retry"))

    def look_at_run(self, _part: str) -> bool:
        """The service has the run looked at when it is asked to bring the task back."""
        return False

    def requeue(self, part: str) -> Data:
        """Bring a task back into the queue whose run is over."""
        return self._post(_task(part, "requeue"))

    def change(self, part: str, given: Mapping[str, str | int], version: int | None = None) -> Data:
        """Change priority, time or title of a waiting task."""
        return self._send("PATCH", _task(part), dict(given) | ({} if version is None else {"version": version}))

    def pause(self, scope: str, reason: str = "") -> Data:
        """Start nothing more in a scope."""
        return self._post("pauses", {"scope": scope, "reason": reason})

    def resume(self, scope: str) -> Data:
        """Go on in a scope."""
        return self._send("DELETE", f"pauses/{quote(scope, safe=':')}")

    # ------------------------------------------------------------------ locks

    def try_lock(self, user: str, _holder: Holder) -> Data | None:
        """Take a user's lock for this process, which the kernel names to the service; None if it is not free."""
        lock: Data | None = self._post(f"locks/{quote(user, safe='')}")["lock"]
        return lock

    def let_go(self, user: str, lock_id: str, _holder: Holder, exit_code: int | None = None) -> Data:
        """Free a lock that this very process holds."""
        path = f"locks/{quote(user, safe='')}/{quote(lock_id, safe='')}"
        return self._send("DELETE", path, query={"exit_code": exit_code})

    def free_lock(self, whose: str, *, force: bool = False) -> Data:
        """Free a lock whose holder is gone, or any, by force."""
        return self._post(f"locks/{quote(whose, safe=':')}/release", {"force": force})

    # ------------------------------------------------------------------ asking

    def _get(self, path: str, query: Mapping[str, object] | None = None) -> Data:
        return self._send("GET", path, query=query)

    def _items(self, path: str, query: Mapping[str, object]) -> list[Data]:
        items: list[Data] = self._get(path, query)["items"]
        return items

    def _post(self, path: str, body: Data | None = None) -> Data:
        return self._send("POST", path, body or {})

    def _send(
        self, method: str, path: str, body: Data | None = None, query: Mapping[str, object] | None = None
    ) -> Data:
        answer: Data = json.loads(self._connection.ask(method, path, query, body).read())
        return answer

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class _Connection(HTTPConnection):
    """HTTP over a socket that has a path."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Call the service."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        directory, name = os.path.split(self._path)
        try:
            # The kernel's field for a path is short: a descriptor of the directory is always short enough.
            folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.sock.connect(f"/proc/self/fd/{folder}/{name}")
            finally:
                os.close(folder)
        except OSError as error:
            raise NoServiceError(_absent(self._path, error)) from error

    def ask(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: Data | None = None
    ) -> HTTPResponse:
        """Ask, and read the answer's head; raises what is refused."""
        words = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"/api/v1/{path}" + (f"?{urlencode(words)}" if words else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        answer = self._ask(method, target, data, headers)
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's errors begin there
            raise _refusal(answer)
        return answer

    def _ask(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        if self.sock is not None and select.select([self.sock], [], [], 0)[0]:
            self.close()  # nothing was asked: the service has hung up, as it does on the silent
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # who turns us away may answer before he has heard us
                self.request(method, target, data, headers)
            return self.getresponse()
        except (OSError, HTTPException) as error:
            self.close()
            raise UnavailableError(f"the service at {self._path} hung up: {error}; try again in a moment.") from error


def _absent(path: str, error: OSError) -> str:
    """Why the service cannot be asked, and what to do about it."""
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        what = "`systemctl enable --now fairlead.target` starts it (as root)"
        return f"the service does not run: nobody listens at {path}; {what}. For a queue of your own set FAIRLEAD_HOME."
    return f"the service cannot be asked at {path}: {error.strerror}; try again in a moment."


def _refusal(answer: HTTPResponse) -> FairleadError:
    """What the service refuses, as it would be refused here."""
    try:
        said = json.loads(answer.read())["error"]
        kind, message, code = str(said["kind"]), str(said["message"]), int(said["exit_code"])
    except (ValueError, KeyError, TypeError):
        return UnavailableError(f"the service answered with {answer.status} {answer.reason}; try again in a moment.")
    return _KINDS.get(kind, _CLASSES.get(code, FairleadError))(message)


def _task(part: str, more: str = "") -> str:
    if not part:
        raise UsageError("an empty word is no id; `fairlead list --all` shows the known ones.")
    return f"tasks/{quote(part, safe='')}" + (f"/{more}" if more else "")


def _events(task: str | None) -> str:
    return _task(task, "events") if task else "events"


def _text(file: File) -> str:
    try:
        return file.data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file.name}: it is not UTF-8 text (byte {error.start + 1}); nothing was submitted."
        ) from error
