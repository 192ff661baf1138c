"""Running a test's helper functions in processes of their own.

A folder's programs.py holds the functions and ends with `main(globals())`; tests start them by name with
`started` or `run`. They are real interpreters: they can be killed, and they share nothing with the test.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def command(folder: str, name: str, *arguments: object) -> list[str]:
    """The command line of one of a folder's programs."""
    return [sys.executable, "-m", f"tests.{folder}.programs", name, *map(str, arguments)]


@contextmanager
def started(folder: str, name: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has said its first line; it goes on when its input is closed, and is killed at the end."""
    with subprocess.Popen(
        command(folder, name, *arguments), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            heard(process)
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[bytes]) -> str:
    """The next line that the program says."""
    assert process.stdout
    return process.stdout.readline().decode().rstrip("\n")


def run(folder: str, name: str, *arguments: object) -> str:
    """Run a program to its end and return what it printed."""
    return subprocess.run(
        command(folder, name, *arguments), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main(functions: Mapping[str, Any]) -> None:
    """Call the function that the command line names."""
    functions[sys.argv[1]](*sys.argv[2:])


def say(text: object) -> None:
    """Print a line that the test sees at once, whole."""
    os.write(1, f"{text}\n".encode())


def together(count: int, work: Callable[[int], None]) -> None:
    """Fork so many processes, let them all begin at the same moment, and wait for them."""
    gate, opener = os.pipe()
    for number in range(count):
        if os.fork() == 0:
            os.close(opener)
            os.read(gate, 1)
            work(number)
            os._exit(0)
    os.close(opener)
    codes = [os.wait()[1] for _ in range(count)]
    if any(codes):
        raise SystemExit(f"some of the processes failed: {codes}")


def run_in_pid_namespace(folder: str, name: str, *arguments: object) -> str:
    """Run a program where it may choose pids; skips the test where the kernel gives no such namespace."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        import pytest  # noqa: PLC0415 - the programs themselves need none of it

        pytest.skip("no pid namespace for an ordinary user here")
    return subprocess.run(
        [*unshare, *command(folder, name, *arguments)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
