"""The load: tasks of many users, entering by the command line and by dropped files, all chosen by a seed."""

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field, replace

from tests.proof import agent
from tests.proof.evidence import Entered
from tests.proof.instance import PROJECTS, Instance

#: The bare interpreter: a virtual environment's would look for its configuration first.
PYTHON = os.path.realpath(sys.executable)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as the judge knows it."""

    name: str
    user: str
    project: str
    seconds: float
    code: int
    linger: float
    idempotent: bool
    #: It enters as a dropped file, not by a submitter.
    dropped: bool

    def document(self, witness: str) -> dict[str, object]:
        """The task file's content."""
        agent_file = os.path.abspath(agent.__file__)
        parts = (witness, self.name, self.user, f"{self.seconds:.3f}", str(self.code), f"{self.linger:.3f}")
        return {
            "user": self.user,
            "project": self.project,
            "command": [PYTHON, "-I", "-S", agent_file, *parts],
            "payload": {"name": self.name},
            "idempotent": self.idempotent,
        }


class Tasks:
    """An endless row of tasks; the same seed gives the same row."""

    def __init__(self, seed: int, users: int, longest: float = 0.6) -> None:
        self._random = random.Random(f"tasks {seed}")
        self._prefix = f"t{seed}"
        self._users = [f"user{number:02}" for number in range(users)]
        self._longest = longest
        self._made = 0

    def next(self) -> Task:
        """The next one: mostly short and well, some failing, some leaving a process behind, some repeatable."""
        draw = self._random
        self._made += 1
        return Task(
            name=f"{self._prefix}-{self._made:05}",
            user=draw.choice(self._users),
            project=draw.choice(PROJECTS),
            seconds=draw.uniform(0.0, self._longest),
            code=3 if draw.random() < 0.1 else 0,
            linger=draw.uniform(0.2, 4.0) if draw.random() < 0.1 else 0.0,
            idempotent=draw.random() < 0.15,
            dropped=draw.random() < 0.67,
        )


@dataclass
class Entrance:
    """Hands tasks to an instance, and knows which of them were acknowledged."""

    instance: Instance
    witness: str
    #: Where task files wait for their submitter; not on a disk whose power is cut.
    files: str
    entered: dict[str, Entered] = field(default_factory=dict)
    acknowledged: int = 0
    submitters: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    #: Submitters that ended without an acknowledgement although nobody killed them.
    refusals: list[str] = field(default_factory=list)

    def drop(self, task: Task, *, acknowledged: bool) -> None:
        """Write a file into the spool, under a hidden name first, as the manual says."""
        hidden = self.instance.path("spool", f".{task.name}.json")
        self._write(hidden, task)
        os.rename(hidden, self.instance.path("spool", f"{task.name}.json"))
        self._note(task)
        if acknowledged:
            self.acknowledge(task.name)

    def submit(self, task: Task) -> int:
        """Start a submitter; returns its pid."""
        path = os.path.join(self.files, f"{task.name}.json")
        self._write(path, task)
        self._note(task)
        process = self.instance.popen("submit", path, "--json", stdout=subprocess.PIPE, log="submit.log")
        self.submitters[task.name] = process
        return process.pid

    def _write(self, path: str, task: Task) -> None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(task.document(self.witness), file)

    def _note(self, task: Task) -> None:
        self.entered[task.name] = Entered(
            name=task.name, user=task.user, idempotent=task.idempotent, acknowledged=False
        )

    def collect(self) -> None:
        """Hear the submitters that have ended."""
        for name, process in list(self.submitters.items()):
            if process.poll() is not None:
                del self.submitters[name]
                self._hear(name, process)

    def _hear(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """A whole line with an id is an acknowledgement, even from one that was killed right after."""
        said = process.communicate()[0].decode()
        if _is_acknowledgement(said) or process.returncode == 0:
            self.acknowledge(name)
        elif process.returncode > 0:
            self.refusals.append(f"{name}: exit code {process.returncode}: {said.strip()}")

    def acknowledge(self, name: str) -> None:
        """From here on the product answers for this task."""
        if not self.entered[name].acknowledged:
            self.entered[name] = replace(self.entered[name], acknowledged=True)
            self.acknowledged += 1


def _is_acknowledgement(said: str) -> bool:
    try:
        return said.endswith("\n") and "id" in said and bool(json.loads(said))
    except ValueError:
        return False
