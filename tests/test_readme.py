"""The README's tour, run as printed: every command works, and prints what the page says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.patience import eventually

from fairlead.base.bell import is_heard
from fairlead.queue.admit import owner_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent

END = "-- the command ended with"
#: Commands that change nothing.
READING = ("fairlead list", "fairlead status", "fairlead why", "fairlead logs", "fairlead show", "ls", "cat")
#: What differs from one run to the next, and what it is compared as.
VARYING = (
    (re.compile(r"\b\d{8}-\d{9}-[0-9a-z]{10}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|GiB)\b"), "SIZE"),
    (re.compile(r"\bpid \d+ on \S+"), "PID"),
    (re.compile(rf"\b{owner_of(str(ROOT / 'README.md'))}\b"), "you"),
    (re.compile(r" +"), " "),
)


class Shell:
    """One bash that runs the tour's commands one after the other, as a reader would."""

    def __init__(self, env: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"], env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, command: str) -> tuple[int, str]:
        """What a command prints, and its exit code."""
        if self._bash.stdin is None or self._bash.stdout is None:
            raise AssertionError("a shell without pipes")
        self._bash.stdin.write(f'{command}\necho "{END} $?"\n')
        lines: list[str] = []
        while not (line := self._bash.stdout.readline()).startswith(END):
            if not line:
                raise AssertionError(f"the shell ended at {command!r}")
            lines.append(line)
        return int(line.split()[-1]), "".join(lines)

    def close(self) -> None:
        self._bash.communicate("exit\n")


def steps() -> list[tuple[str, str]]:
    """The commands of the tour with what they print."""
    blocks = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def compared(text: str) -> list[str]:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a reader whose `make run` is up."""
    home = tmp_path / "home"
    made = os.environ | {"FAIRLEAD_HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    with subprocess.Popen([BIN / "fairlead", "up"], env=made, stdout=subprocess.DEVNULL) as up:
        try:
            eventually(lambda: is_heard(str(home / "run" / "bells"), "daemon"), "the daemon runs")
            yield made
        finally:
            up.terminate()


def test_the_tour_runs_as_printed(env: dict[str, str]) -> None:
    """Every command of the tour succeeds and prints what the README shows."""
    assert len(steps()) > 10
    shell = Shell(env)
    for command, output in steps():
        code, printed = shell.run(command)
        # What was dropped is taken in a moment later: whoever only reads may look again.
        while command.startswith(READING) and compared(printed) != compared(output):
            code, printed = shell.run(command)
        assert (code, compared(printed)) == (0, compared(output)), command
    shell.close()


def test_the_two_commands_are_targets() -> None:
    """`make run` and `make test`, which the README promises, are targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_somewhere() -> None:
    """Every relative link of README and docs names a file that is there."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
