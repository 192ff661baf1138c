"""task.json: everything a supervisor needs to start and watch an agent, so that anything can start it.

Supervisors load this and not `launch`, which works the orders out: a spawner stays small.
"""

import os
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.base.files import read_plain

NAME = "task.json"
PROMPT = "prompt.txt"
RESULT = "result.json"
PROGRESS = "progress"
#: Set for every process of a run, and inherited by what it starts: finds them again.
MARKER = "FAIRLEAD_LOCK_ID"
#: The same, for whoever knows only the task.
TASK_MARKER = "FAIRLEAD_TASK_ID"


class InUnit(Struct, kw_only=True, frozen=True):
    """Where an agent runs that is not to be a child of its supervisor: in a unit of systemd."""

    name: str
    description: str
    #: Who starts it: `system`, `user`, or a porter by the path of his socket.
    by: str
    #: Whom it runs as; none: whom the one who starts it runs as.
    user: str | None = None
    #: What it may use and reach, by the keys of a `sandbox` section.
    sandbox: dict[str, Any] = {}


class Launch(Struct, kw_only=True, frozen=True):
    """How to start an agent, and the limits to hold it to."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: str | None
    timeout: float
    grace: float
    stop_signal: str
    heartbeat: float
    output_bytes: int
    result_bytes: int
    artifacts: tuple[str, ...]
    artifacts_max: int
    bells: str
    #: The task for the agent to read.
    task: dict[str, Any]
    unit: InUnit | None = None


_decode = msgspec.json.Decoder(Launch).decode


def read_launch(run_dir: str) -> Launch:
    """Read a run's task.json."""
    return _decode(read_plain(os.path.join(run_dir, NAME), 64 << 20))
