"""A daemon, watchdog or command that is killed at a chosen place: `python -m tests.support.crashing …`.

The place is a function, by its module and name; the kill is real, and comes before or after its n-th call.
"""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.support.instance import ROOT, Home

from fairlead.base.logs import open_log
from fairlead.cli.main import main as fairlead
from fairlead.config.paths import find_paths
from fairlead.daemon.process import Daemon
from fairlead.watchdog.process import WatchdogProcess


def crash(home: Home, who: str, place: str, when: str = "after", call: int = 1) -> None:
    """Play one pass of the daemon or the watchdog, or a command, and see it die at that place."""
    command = [sys.executable, "-m", "tests.support.crashing", who, place, when, str(call)]
    done = subprocess.run(command, cwd=ROOT, env=home.environ, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, f"{who} did not die at {place}: {done.stdout}{done.stderr}"


def _arm(place: str, when: str, call: int) -> None:
    """Let the process kill itself there."""
    module, _, name = place.partition(":")
    *path, last = name.split(".")
    owner: Any = import_module(module)
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, last, _deadly(getattr(owner, last), when, call))


def _deadly(function: Callable[..., Any], when: str, call: int) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        nonlocal calls
        calls += 1
        if when == "before" and calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = function(*arguments, **named)
        if when == "after" and calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return wrapped


def _play(who: str) -> None:
    paths = find_paths()
    log = open_log(paths.log_file, who)
    if who == "daemon":
        daemon = Daemon(paths, os.environ, log)
        daemon.prepare()
        daemon.dispatcher.run_once()
    elif who == "watchdog":
        WatchdogProcess(paths, os.environ, log).watchdog.run_once()
    else:
        fairlead(who.split(" "))


if __name__ == "__main__":
    _arm(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    _play(sys.argv[1])
