"""Running commands: in this process, as one of their own, or on a terminal."""

import fcntl
import json
import os
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from tests.support.instance import FAIRLEAD, ROOT, Home
from tests.support.patience import PATIENCE, eventually

from fairlead.base.clock import SystemClock
from fairlead.cli.main import main
from fairlead.queue.decide import Pick
from fairlead.queue.locks import this_holder
from fairlead.queue.states import Status
from fairlead.queue.store import Ended, Terms
from fairlead.queue.task import Outcome

CTRL_C = b"\x03"


class Said(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


class Run:
    """Commands in the test's own process: as quick as a function call."""

    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> Said:
        """Run a command, and see that it exits as expected."""
        self._capsys.readouterr()
        got = main([*words])
        said = Said(*self._capsys.readouterr())
        assert got == code, f"{words} exited with {got}: {said.err}"
        return said

    def json(self, *words: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON is whatever the command prints
        """What a command prints for programs."""
        return json.loads(self(*words, "--json", code=code).out)

    def lines(self, *words: str, code: int = 0) -> list[str]:
        """What a command prints for people."""
        return self(*words, code=code).out.splitlines()

    def refusal(self, *words: str, code: int) -> str:
        """The sentence of a command that fails: on standard error, with nothing else printed."""
        said = self(*words, code=code)
        assert said.out == ""
        assert said.err.startswith("fairlead: ")
        return said.err.removeprefix("fairlead: ").removesuffix("\n")

    def played(self, script: str = "true", user: str = "ann", **fields: object) -> str:
        """The id of a task that has run to its end."""
        task_id = self.home.submit(script, user, **fields)
        self.home.play(lambda: self.home.is_over(task_id), self.home.dispatcher(), self.home.watchdog())
        return task_id


def quarantined_task(home: Home) -> str:
    """A lost task whose own lock was kept, since nobody could prove that all of its run is gone."""
    home.configure(per_user_serialization={"enabled": False})
    store, holder, now = home.open().store, this_holder(), SystemClock().wall_ms()
    task_id = home.submit()
    terms = Terms(now=now, slots=1, serialized=False, lease=60.0, holder=holder)
    [claim] = store.claim([Pick(task_id=task_id, user="ann", project="default")], terms)
    outcome = Outcome(status=Status.LOST, reason="supervisor_died", finished_at=now, evidence={"left": [[7, 9]]})
    assert store.finish([Ended(task_id=task_id, token=claim.token, outcome=outcome, quarantine=True)], now=now) == [
        True
    ]
    return task_id


@contextmanager
def process(home: Home, *words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 - Popen's
    """A command as a process of its own, whose output can be read; it is killed at the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with subprocess.Popen([*FAIRLEAD, *words], cwd=ROOT, env=home.environ, text=True, **pipes) as one:
        try:
            yield one
        finally:
            one.kill()


def is_waiting(home: Home, what: str, one: "subprocess.Popen[Any]") -> bool:
    """Whether a command has hung its bell, and so hears whatever happens from now on."""
    return os.path.exists(os.path.join(home.paths.bells, f"{what}-{one.pid}"))


def wait_waiting(home: Home, what: str, one: "subprocess.Popen[Any]") -> None:
    """Wait until a command listens."""
    eventually(lambda: is_waiting(home, what, one), f"`{what}` does not listen")


class Terminal:
    """A command on a terminal of its own: what a person sees, and types."""

    def __init__(self, home: Home, words: tuple[str, ...], columns: int, env: dict[str, str]) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environ = {name: value for name, value in home.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *FAIRLEAD, *words],
            cwd=ROOT,
            env=environ | {"TERM": "xterm"} | env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self._text = ""

    @property
    def text(self) -> str:
        """All that was shown so far."""
        try:
            while chunk := os.read(self._master, 65536):
                self._text += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
        except OSError:
            pass  # nothing more now, or at all
        return self._text

    def shows(self, text: str) -> None:
        """Wait until this can be read on the terminal."""
        eventually(lambda: text in self.text, f"the terminal does not show {text!r}")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def ended(self) -> int:
        """Wait for the command's end; its exit code."""
        # Read on meanwhile: a terminal that is full would keep the command waiting.
        eventually(lambda: (self.text, self.process.poll() is not None)[1], "the command does not end")
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal, as one closes a window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1


@contextmanager
def terminal(home: Home, *words: str, columns: int = 200, **env: str) -> Iterator[Terminal]:
    """A command on a terminal; whatever is left of it is ended afterwards."""
    one = Terminal(home, words, columns, env)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait(PATIENCE)
        one.hang_up()


def shown(home: Home, *words: str, columns: int = 200, code: int = 0, **env: str) -> str:
    """What a terminal shows of a command that ends by itself."""
    with terminal(home, *words, columns=columns, **env) as one:
        assert one.ended() == code, one.text
        return one.text
