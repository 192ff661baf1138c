"""The drop-off of a run whose agent is another user: in his spool, reached by clerks alone."""

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

from msgspec import json, structs

from fairlead.base.errors import FairleadError
from fairlead.base.files import read_plain
from fairlead.conductor import errands, orders
from fairlead.conductor.dropoff import PROGRESS_BYTES, last_line
from fairlead.conductor.orders import Launch
from fairlead.conductor.porter import ClerkError, Porter, PorterError, refusal, run_errand
from fairlead.conductor.results import UnusableResultError, parse_result
from fairlead.systemd.unit import NoManagerError


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
        wanted = errands.Prepare(self._run, files, launch.cwd, launch.argv[0], path, stdin)
        try:
            reply, fds = self._send(wanted)
        except NoManagerError as error:
            raise OSError(errno.EAGAIN, str(error), self._user) from error  # no fault of his: it is tried again
        except ClerkError as error:
            raise OSError(errno.ECHILD, str(error), self._user) from error
        if not isinstance(reply, errands.Ready):
            raise refusal(reply)
        found = structs.replace(launch, argv=(reply.program, *launch.argv[1:]))
        return found, fds[0] if fds else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def progress(self) -> str:
        """The last line of what it says about its progress; what it said before, if nobody can look now."""
        if self._left is None:
            try:
                reply, _ = self._send(errands.Read(self._run, PROGRESS_BYTES))
            except FairleadError:
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
            reply, _ = self._send(wanted)
        except FairleadError as error:
            return errands.Left(problem=f"it could not be collected: {error}")
        return reply if isinstance(reply, errands.Left) else errands.Left(problem=str(refusal(reply)))

    def clear(self) -> None:
        """Remove it; what cannot be removed now is pruned later."""
        with suppress(FairleadError):
            self._send(errands.Clear(self._run))
        self._porter.close()

    def _send(self, errand: errands.Errand) -> tuple[errands.Reply, Sequence[int]]:
        with closing(self._hired()) as line:
            return run_errand(line, errand)

    def _hired(self) -> socket.socket:
        try:
            return self._porter.hire(self._user)
        except PorterError as error:
            raise ClerkError(str(error)) from error
