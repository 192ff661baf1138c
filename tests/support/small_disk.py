"""A real file system of a small size, which a test can fill and make read-only: a tmpfs of its own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.packages import need

MEGABYTE = 1 << 20
#: The ballast's name; the instance leaves it alone.
BALLAST = "ballast"


class SmallDisk:
    """What is mounted at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / BALLAST

    def fill(self, leave: int = 0) -> None:
        """Take all bytes but so many."""
        self._ballast.mkdir(exist_ok=True)
        with open(self._ballast / "bytes", "ab", buffering=0) as file:
            for piece in (MEGABYTE, 4096):
                with suppress(OSError):  # others were faster with the last of it
                    while self._free() - leave >= piece:
                        file.write(bytes(piece))

    def _free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def take_names(self, leave: int = 0) -> None:
        """Take all files that can be made but so many."""
        self._ballast.mkdir(exist_ok=True)
        with suppress(OSError):  # others were faster with the last of them
            for number in range(os.statvfs(self.path).f_favail - leave):
                (self._ballast / f"file-{number}").touch()

    def make_room(self) -> None:
        """Give back what was taken."""
        for file in self._ballast.iterdir():
            file.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Whoever opens something there can only read, until the end of the block."""
        _run("mount", "--bind", str(self.path), str(self.path))
        _run("mount", "-o", "remount,bind,ro", str(self.path))
        try:
            yield
        finally:
            _run("umount", "--lazy", str(self.path))


@contextmanager
def small_disk(path: Path, size: int = 64 * MEGABYTE, files: int = 4000) -> Iterator[SmallDisk]:
    """Mount one at this path, which is made; the test is skipped where that is not allowed."""
    need("mount", "mount")
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    path.mkdir()
    options = f"size={size},nr_inodes={files},mode=0755"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", str(path)], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
