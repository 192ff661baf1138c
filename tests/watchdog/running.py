"""Runs that the tests of this folder begin with."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.proof.evidence import Process
from tests.proof.processes import identify
from tests.support.instance import Home

from fairlead.conductor.launcher import ProcessLauncher
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.queue.states import Status
from fairlead.queue.task import Outcome
from fairlead.watchdog.watchdog import Watchdog

LONG = "until [ -e go ]; do sleep 0.02; done"


class SilentLauncher(ProcessLauncher):
    """A launcher whose supervisors never come."""

    def launch(self, run_dir: str) -> None:
        """Do nothing."""


def begin(home: Home, script: str = LONG, user: str = "ann", **fields: object) -> tuple[str, Dispatcher, Watchdog]:
    """A task that runs, known to be running, and has beaten."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(script, user=user, **fields)
    home.play(lambda: home.task(task).status is Status.RUNNING, dispatcher, watchdog)
    home.beats(task)
    return task, dispatcher, watchdog


def outcome_of(home: Home, task_id: str) -> Outcome:
    """How a task ended."""
    outcome = home.task(task_id).outcome
    assert outcome is not None
    return outcome


@contextmanager
def gone_on(home: Home, task_id: str) -> Iterator[Process]:
    """A supervisor that answers for this run by the store, and looks after another one by now."""
    code = "from fairlead.conductor.prctl import lay_down; lay_down(); print(flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        supervisor = identify(process.pid)
        assert supervisor
        held = (supervisor.pid, supervisor.start, task_id)
        home.store.db.run("UPDATE locks SET pid = ?, pid_start = ? WHERE task_id = ?", held)
        yield supervisor
