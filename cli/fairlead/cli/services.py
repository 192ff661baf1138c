"""Running the daemon or the watchdog: in the foreground, or detached where there is no systemd."""

import argparse
import os
import sys
from collections.abc import Callable, MutableMapping
from typing import Protocol

from fairlead.base.errors import FairleadError, UnavailableError
from fairlead.base.files import make_directory
from fairlead.base.logs import Log, open_log
from fairlead.cli.access import own_paths
from fairlead.cli.arguments import Parser, parser
from fairlead.config.loading import load
from fairlead.config.paths import Paths
from fairlead.config.schema import Config

_READY = b"ready"


class Service(Protocol):
    """A process that runs until it is asked to stop."""

    def run(self, *, ready: Callable[[], None]) -> None:
        """Work until asked to stop; `ready` is called once it works."""

    def close(self) -> None:
        """Let go of everything."""


Make = Callable[[Paths, MutableMapping[str, str], Log], Service]


class NotStartedError(UnavailableError):
    """The service did not start."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def service_parser(name: str, summary: str) -> Parser:
    """What both services take."""
    made = parser(
        name,
        summary + " TERM or Ctrl-C stops it, agents go on; HUP reads the settings again.",
        [f"fairlead {name}", f"fairlead {name} --detach"],
        json=False,
    )
    made.add_argument("--detach", action="store_true", help="go to the background, where there is no systemd")
    made.add_argument("--quiet", action="store_true", help="log to the file alone, even on a terminal")
    return made


def run_service(name: str, args: argparse.Namespace, make: Make) -> int:
    """Run one service; TERM or Ctrl-C stops it, HUP makes it read the settings again."""
    paths = own_paths()
    for directory in paths.directories():
        make_directory(directory)
    config = load(paths, os.environ).config
    if args.detach:
        return _detach(name, paths, config, make)
    _run(name, paths, config, make, terminal=sys.stderr.isatty() and not args.quiet)
    return 0


def _run(
    name: str,
    paths: Paths,
    config: Config,
    make: Make,
    *,
    terminal: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> None:
    settings = config.log
    log = open_log(
        paths.log_file,
        name,
        settings.level,
        terminal=terminal,
        max_bytes=settings.max_bytes,
        keep=settings.keep,
        file=settings.file,
    )
    service = make(paths, os.environ, log)
    try:
        service.run(ready=ready)
    finally:
        service.close()


# ---------------------------------------------------------------------- in the background


def _detach(name: str, paths: Paths, config: Config, make: Make) -> int:
    """Start the service in the background, and return once it works; it says through a pipe how it went."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _run_detached(name, paths, config, make, writer)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        word = pipe.read()
    if word != _READY:
        code, _, why = word.decode().partition(" ")
        sentence = f"the {name} did not start: {why or f'{paths.error_log} may say why.'}"
        raise NotStartedError(sentence, int(code or UnavailableError.exit_code))
    lock = paths.single_lock(name)
    print(f"the {name} runs in the background; its pid is in {lock}, its log is {paths.log_file}")
    return 0


def _run_detached(name: str, paths: Paths, config: Config, make: Make, writer: int) -> None:
    """Be a daemon in the sense of Unix: no terminal, no parent, no open files but these."""
    from daemon import DaemonContext  # noqa: PLC0415 - only for this

    with open(paths.error_log, "ab") as errors:
        context = DaemonContext(
            detach_process=True,
            working_directory="/",
            umask=0o077,
            files_preserve=[writer],
            stdout=errors,
            stderr=errors,
            signal_map={},
        )
        with context:
            _run_and_tell(name, paths, config, make, writer)


def _run_and_tell(name: str, paths: Paths, config: Config, make: Make, writer: int) -> None:
    with open(writer, "wb", buffering=0) as pipe:

        def ready() -> None:
            pipe.write(_READY)
            pipe.close()

        try:
            _run(name, paths, config, make, ready=ready)
        except FairleadError as error:
            if pipe.closed:
                raise
            pipe.write(f"{error.exit_code} {error}".encode())
