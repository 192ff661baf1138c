"""What an agent leaves for its supervisor: its progress, its result, and the artifacts in its tree."""

import os
from typing import Any, Protocol

from fairlead.conductor import orders
from fairlead.conductor.artifacts import find_artifacts
from fairlead.conductor.orders import Launch
from fairlead.conductor.output import read_tail
from fairlead.conductor.results import read_result

#: So much of the progress file's end is looked at.
_PROGRESS = 500


class DropOff(Protocol):
    """Where an agent leaves what it has to say."""

    def progress(self) -> str:
        """The last line of what it says about its progress."""

    def result(self) -> Any:  # noqa: ANN401 - whatever the agent wrote
        """Its result; raises FileNotFoundError or UnusableResultError."""

    def artifacts(self) -> list[str]:
        """The files in its tree that the task's patterns name."""


class OwnDropOff:
    """The run directory itself, where agent and supervisor are the same user."""

    def __init__(self, run_dir: str, launch: Launch) -> None:
        self._dir = run_dir
        self._launch = launch

    def progress(self) -> str:
        """The last line of what it says about its progress."""
        return last_line(read_tail(os.path.join(self._dir, orders.PROGRESS), _PROGRESS))

    def result(self) -> Any:  # noqa: ANN401 - whatever the agent wrote
        """Its result; raises FileNotFoundError or UnusableResultError."""
        return read_result(os.path.join(self._dir, orders.RESULT), self._launch.result_bytes)

    def artifacts(self) -> list[str]:
        """The files in its tree that the task's patterns name."""
        return find_artifacts(self._launch.cwd, self._launch.artifacts, self._launch.artifacts_max)


def last_line(data: bytes) -> str:
    """The last line of what was read from a file's end."""
    return data.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
