"""What an agent leaves for its supervisor: its progress, its result, and the artifacts in its tree."""

import os
from typing import Any, Protocol

from fairlead.conductor import orders
from fairlead.conductor.artifacts import find_artifacts
from fairlead.conductor.orders import Launch
from fairlead.conductor.output import read_tail
from fairlead.conductor.results import read_result

#: So much of the progress file's end is looked at.
PROGRESS_BYTES = 500


class DropOff(Protocol):
    """Where an agent finds what it is to read, and leaves what it has to say."""

    def prepare(self) -> tuple[Launch, int]:
        """Make it; returns the orders as they can be carried out, and standard input, which is the caller's to close.

        Raises OSError or ValueError if the agent could not be started.
        """

    def progress(self) -> str:
        """The last line of what it says about its progress."""

    def result(self) -> Any:  # noqa: ANN401 - whatever the agent wrote
        """Its result; raises FileNotFoundError or UnusableResultError."""

    def artifacts(self) -> list[str]:
        """The files in its tree that the task's patterns name."""

    def clear(self) -> None:
        """The run is over: remove what nobody needs any more."""


class OwnDropOff:
    """The run directory itself, where agent and supervisor are the same user."""

    def __init__(self, run_dir: str, launch: Launch) -> None:
        self._dir = run_dir
        self._launch = launch

    def prepare(self) -> tuple[Launch, int]:
        """All is there; standard input is the prompt, or nothing."""
        return self._launch, os.open(self._launch.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def progress(self) -> str:
        """The last line of what it says about its progress."""
        return last_line(read_tail(os.path.join(self._dir, orders.PROGRESS), PROGRESS_BYTES))

    def result(self) -> Any:  # noqa: ANN401 - whatever the agent wrote
        """Its result; raises FileNotFoundError or UnusableResultError."""
        return read_result(os.path.join(self._dir, orders.RESULT), self._launch.result_bytes)

    def artifacts(self) -> list[str]:
        """The files in its tree that the task's patterns name."""
        return find_artifacts(self._launch.cwd, self._launch.artifacts, self._launch.artifacts_max)

    def clear(self) -> None:
        """It is kept with the run."""


def last_line(data: bytes) -> str:
    """The last line of what was read from a file's end."""
    return data.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
