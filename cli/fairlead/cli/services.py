"""Running the daemon or the watchdog: in the foreground, or detached where there is no systemd."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from fairlead.base.files import make_directory
from fairlead.base.logs import open_log
from fairlead.cli.arguments import parser
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.admit import Log


class Service(Protocol):
    """A process that runs until it is asked to stop."""

    def run(self) -> None:
        """Work until asked to stop."""

    def close(self) -> None:
        """Let go of everything."""


def run_service(
    words: list[str], name: str, summary: str, make: Callable[[Paths, Mapping[str, str], Log], Service]
) -> int:
    """Run one service; TERM or Ctrl-C stops it, HUP makes it read the settings again."""
    made = parser(
        name,
        summary + " TERM or Ctrl-C stops it, agents go on; HUP reads the settings again.",
        [f"fairlead {name}", f"fairlead {name} --detach"],
        json=False,
    )
    made.add_argument("--detach", action="store_true", help="go to the background, where there is no systemd")
    args = made.parse_args(words)
    paths = find_paths()
    for directory in paths.directories():
        make_directory(directory)
    config = load(paths, os.environ).config
    with _detached(paths, name) if args.detach else nullcontext():
        log = open_log(
            paths.log_file,
            name,
            config.log.level,
            terminal=sys.stderr.isatty(),
            max_bytes=config.log.max_bytes,
            keep=config.log.keep,
        )
        service = make(paths, os.environ, log)
        try:
            service.run()
        finally:
            service.close()
    return 0


def _detached(paths: Paths, name: str) -> Any:  # noqa: ANN401 - python-daemon has no types
    """The context in which this process is a daemon of its own, with a pid file in the run directory."""
    from daemon import DaemonContext  # noqa: PLC0415 - only for this
    from daemon.pidfile import PIDLockFile  # noqa: PLC0415 - only for this

    errors = open(paths.error_log, "ab")  # noqa: SIM115 - the daemon's standard error for its whole life
    pid_file = PIDLockFile(os.path.join(paths.run, f"{name}.pid"))
    if pid_file.is_locked() and not _lives(pid_file.read_pid()):
        pid_file.break_lock()
    return DaemonContext(
        working_directory="/", umask=0o077, pidfile=pid_file, stdout=errors, stderr=errors, signal_map={}
    )


def _lives(pid: int | None) -> bool:
    return pid is not None and os.path.exists(f"/proc/{pid}")
