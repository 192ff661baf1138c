"""Whether a control group ran out of memory, where the kernel tells it in the manner of its first version."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.patience import eventually

from fairlead.systemd.memory import Watches

HIERARCHY = Path("/sys/fs/cgroup/memory")
HOG = "import sys; sys.stdin.readline(); hog = [bytearray(1 << 20) for _ in range(256)]"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory."""
    if not (HIERARCHY / "memory.oom_control").exists():
        pytest.skip("the kernel counts memory in the manner of the second version here: systemd tells it then")
    group = HIERARCHY / f"fairlead-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(32 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    with suppress(OSError):
        group.rmdir()


def play(group: Path, watches: Watches, script: str) -> int:
    """Run a program in that group, with the kernel counting."""
    watches.begin("unit", f"/{group.name}")
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    (group / "cgroup.procs").write_text(str(process.pid))
    process.communicate(b"go\n")
    return process.returncode


@pytest.mark.parametrize("is_gone", [False, True])
def test_running_out_of_memory_is_known(group: Path, is_gone: bool) -> None:  # noqa: FBT001 - a parameter
    """Also when the group has been removed, of which the kernel tells in the same way."""
    watches = Watches()
    assert play(group, watches, HOG) == -signal.SIGKILL
    if is_gone:
        eventually(lambda: not (group / "cgroup.procs").read_text(), "somebody stays")
        group.rmdir()
    assert watches.has_run_out("unit")
    assert watches.has_run_out("unit")
    watches.close()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_modest_program_has_not_run_out(group: Path, is_gone: bool) -> None:  # noqa: FBT001 - a parameter
    """The end of its group is not taken for that."""
    watches = Watches()
    assert play(group, watches, "input()") == 0
    if is_gone:
        eventually(lambda: not (group / "cgroup.procs").read_text(), "somebody stays")
        group.rmdir()
    assert not watches.has_run_out("unit")
    watches.close()


def test_nothing_stays_open_of_watches(group: Path) -> None:
    """Of those that ended, nor of groups that there are not; of an unknown one nothing is known."""
    before = len(os.listdir("/proc/self/fd"))
    watches = Watches()
    for number in range(10):
        watches.begin(f"{number}", f"/{group.name}")
        watches.begin("none", "/no-such-group")
        watches.begin("root", "/")
        watches.end(f"{number}")
        watches.end(f"{number}")
    watches.begin("last", f"/{group.name}")
    watches.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not watches.has_run_out("none")
