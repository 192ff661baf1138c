"""Power cuts are real here: what was written durably is there afterwards, what was not is gone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proof import disk, nosync
from tests.proof.disk import Cut, Disk

FILES = 25
#: Writes files, saying the name of each once it is done.
WRITER = """
import os, sys
from fairlead.base.files import write_atomically, write_durably
write = {"durably": write_durably, "atomically": write_atomically}[sys.argv[1]]
for number in range(int(sys.argv[3])):
    write(os.path.join(sys.argv[2], str(number)), b"x" * 1000)
"""

pytestmark = pytest.mark.skipif(bool(disk.why_not()), reason=disk.why_not() or "it can")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Disk]:
    one = Disk(str(tmp_path / "image"), str(tmp_path / "disk"), megabytes=32)
    one.mount()
    yield one
    one.unmount()


def survivors(mounted: Disk, how: str, environment: dict[str, str] | None = None) -> list[bytes]:
    """The content of what is left of files that were written in this manner just before a cut."""
    folder = os.path.join(mounted.mounted, "files")
    os.mkdir(folder)
    subprocess.run(["sync", "-f", folder], check=True)
    command = [sys.executable, "-c", WRITER, how, folder, str(FILES)]
    subprocess.run(command, check=True, env=os.environ | (environment or {}))
    mounted.cut(Cut.HARD)
    mounted.unmount()
    mounted.mount()
    return [path.read_bytes() for path in Path(folder).iterdir() if path.name.isdigit()]


def test_durable_writes_survive(mounted: Disk) -> None:
    """Every file that was written durably is there, whole, after the power was cut."""
    assert survivors(mounted, "durably") == [b"x" * 1000] * FILES


def test_other_writes_do_not(mounted: Disk) -> None:
    """Files that were only written atomically are lost: the cut is a cut."""
    assert len(survivors(mounted, "atomically")) < FILES


@pytest.mark.skipif(bool(nosync.why_not()), reason=nosync.why_not() or "it can")
def test_the_control_arm_takes_durability_away(mounted: Disk, tmp_path: Path) -> None:
    """With the preloaded library, durable writes are lost like others."""
    assert len(survivors(mounted, "durably", nosync.environment(str(tmp_path)))) < FILES


def test_the_disk_is_sound_after_a_cut(mounted: Disk) -> None:
    """The journal brings the file system itself back to a sound state."""
    survivors(mounted, "durably")
    mounted.unmount()
    assert mounted.problems() == ""
    mounted.mount()
