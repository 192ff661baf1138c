"""The drop-off of a run whose agent is another user: in his spool, reached by clerks alone."""

import errno
import os
import socket
import time
from contextlib import closing, suppress
from typing import Any

from msgspec import json, structs

from fairlead.base import frames
from fairlead.base.errors import FairleadError, is_machine_trouble
from fairlead.base.files import read_plain
from fairlead.conductor import errands, orders
from fairlead.conductor.dropoff import PROGRESS_BYTES, last_line
from fairlead.conductor.orders import Launch
from fairlead.conductor.porter import ClerkError, Porter, PorterError, refusal, run_errand
from fairlead.conductor.results import UnusableResultError, parse_result
from fairlead.systemd.unit import NoManagerError

#: A file system with less than that cannot take a prompt.
_LEAST_ROOM = 16 << 20

#: A clerk goes with his porter, or because his user ends him: another one is sent, after a pause.
_TRIES, _PAUSE = 3, 1.0


class ClerkedDropOff:
    """Where another user's agent leaves what it has to say."""

    def __init__(self, porter: Porter, user: str, run_dir: str, launch: Launch) -> None:
        self._porter = porter
        self._user = user
        self._dir = run_dir
        self._run = os.path.basename(run_dir)
        self._launch = launch
        self._left: errands.Left | None = None
        self._last_progress = ""

    def prepare(self) -> tuple[Launch, int]:
        """Make it, with prompt and task in it, and find the program as the user would."""
        launch = self._launch
        files = {
            orders.PROMPT: read_plain(os.path.join(self._dir, orders.PROMPT), errands.LONGEST),
            orders.NAME: json.encode({"task": launch.task}),
        }
        stdin = os.path.basename(launch.stdin or "")
        path = launch.env.get("PATH", os.defpath)
        reply, fds = self._prepared(errands.Prepare(self._run, files, launch.cwd, launch.argv[0], path, stdin))
        if not isinstance(reply, errands.Ready) or (stdin and not fds):
            raise _blamed(refusal(reply), launch)
        found = structs.replace(launch, argv=(reply.program, *launch.argv[1:]))
        frames.close_all(fds[1:])
        return found, fds[0] if fds else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _prepared(self, errand: errands.Prepare) -> tuple[errands.Reply, list[int]]:
        """Have it made. Without a porter nobody can start: that is tried again. A clerk is his user's own affair."""
        try:
            return self._send_patiently(errand)
        except NoManagerError as error:
            raise OSError(errno.EAGAIN, str(error)) from error
        except ClerkError as error:
            raise TimeoutError(errno.ETIMEDOUT, str(error), self._run) from error
        except FairleadError as error:
            raise PermissionError(errno.EPERM, str(error), self._run) from error

    def progress(self) -> str:
        """The last line of what it says about its progress; what it said before, if nobody can look now."""
        if self._left is None:
            try:
                reply, _ = self._send(errands.Read(self._run, PROGRESS_BYTES))
            except (FairleadError, OSError):
                return self._last_progress
            if isinstance(reply, errands.Left):
                self._last_progress = last_line(reply.progress)
        return self._last_progress

    def result(self) -> Any:  # noqa: ANN401 - whatever the agent wrote
        """Its result; raises FileNotFoundError or UnusableResultError."""
        left = self._collected()
        if left.problem:
            raise UnusableResultError(left.problem)
        if left.result is None:
            raise FileNotFoundError(orders.RESULT)
        return parse_result(left.result)

    def artifacts(self) -> list[str]:
        """The files in its tree that the task's patterns name."""
        return list(self._collected().artifacts)

    def _collected(self) -> errands.Left:
        if self._left is None:
            self._left = self._collect()
            self._last_progress = last_line(self._left.progress) or self._last_progress
        return self._left

    def _collect(self) -> errands.Left:
        launch = self._launch
        wanted = errands.Read(
            self._run, PROGRESS_BYTES, launch.result_bytes, launch.cwd, launch.artifacts, launch.artifacts_max
        )
        try:
            reply, _ = self._send_patiently(wanted)
        except (FairleadError, OSError) as error:
            return errands.Left(problem=f"it could not be collected: {error}")
        return reply if isinstance(reply, errands.Left) else errands.Left(problem=str(refusal(reply)))

    def clear(self) -> None:
        """Remove it; what cannot be removed now is pruned later."""
        with suppress(FairleadError, OSError):
            self._send(errands.Clear(self._run))
        self._porter.close()

    def _send_patiently(self, errand: errands.Errand, tries: int = _TRIES) -> tuple[errands.Reply, list[int]]:
        """Send another clerk where one has gone: such an errand may be done twice."""
        try:
            return self._send(errand)
        except (ClerkError, NoManagerError):
            if tries <= 1:
                raise
        time.sleep(_PAUSE)
        return self._send_patiently(errand, tries - 1)

    def _send(self, errand: errands.Errand) -> tuple[errands.Reply, list[int]]:
        with closing(self._hired()) as line:
            return run_errand(line, errand)

    def _hired(self) -> socket.socket:
        try:
            return self._porter.hire(self._user)
        except PorterError as error:  # too many are out
            raise ClerkError(str(error)) from error


def _blamed(error: OSError | ValueError, launch: Launch) -> OSError | ValueError:
    """What a clerk has met, as his user's own trouble: by links and limits he can bring about whatever he likes.

    A disk is full if it is seen to be: that is everybody's trouble, and the task waits for its end.
    """
    if not isinstance(error, OSError) or not is_machine_trouble(error):
        return error
    if error.errno == errno.ENOSPC and _is_full(launch.env["FAIRLEAD_RUN_DIR"]):
        return error
    return OSError(errno.ECANCELED, error.strerror, error.filename)


def _is_full(drop_off: str) -> bool:
    """Whether the disk of the spools is full: the three folders around a drop-off are its user's, and closed to us."""
    room = os.statvfs(os.path.dirname(os.path.dirname(os.path.dirname(drop_off))))
    return room.f_bavail * room.f_frsize < _LEAST_ROOM or (room.f_files > 0 and room.f_favail == 0)
