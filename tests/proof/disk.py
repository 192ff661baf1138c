"""A disk whose power can be cut: ext4 in a file, mounted through a loop device, shut down by the kernel's own ioctl.

After the ioctl nothing reaches the file any more: what was not synced is gone when it is mounted again, as after a
real power cut. Acknowledgements, notes and logs of the proof live elsewhere.
"""

import fcntl
import glob
import os
import shutil
import subprocess
from enum import IntEnum

from tests.proof.waiting import wait_for

#: _IOR('X', 125, __u32)
_SHUTDOWN = 0x8004587D
_TOOLS = ("mkfs.ext4", "mount", "umount", "e2fsck", "losetup")


class Cut(IntEnum):
    """How much the file system still writes before it goes."""

    #: Everything dirty is written: an orderly end in the middle of the work.
    SYNCED = 0
    #: The journal is written, data are not.
    LOGGED = 1
    #: Nothing at all: what the power cut of a machine does.
    HARD = 2


class Disk:
    """One such disk."""

    def __init__(self, image: str, mounted: str, megabytes: int = 256) -> None:
        self.image = image
        self.mounted = mounted
        os.makedirs(mounted, exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", image)

    def mount(self) -> None:
        """Let the kernel replay the journal, and use it."""
        _run("mount", "-t", "ext4", "-o", "loop", self.image, self.mounted)

    def cut(self, how: Cut) -> None:
        """Cut the power now."""
        fd = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, int(how).to_bytes(4, "little"))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Let go of it, once its last user is gone.

        Mount namespaces of processes that have just died keep the file system for a moment longer. Whoever mounted it
        again in that moment would get the old one, still shut down.
        """
        if not wait_for(self._try_unmount, 20.0) or not wait_for(lambda: not self._is_attached(), 20.0):
            raise RuntimeError(f"{self.mounted} stays busy")

    def _try_unmount(self) -> bool:
        done = subprocess.run(["umount", self.mounted], capture_output=True, check=False)
        return done.returncode == 0 or not os.path.ismount(self.mounted)

    def _is_attached(self) -> bool:
        """Whether a loop device still has the image: the kernel lets go of it with the file system."""
        return any(_content(path) == self.image for path in glob.glob("/sys/block/loop*/loop/backing_file"))

    def problems(self) -> str:
        """What e2fsck has to say about the unmounted disk after its journal was replayed; empty: nothing."""
        done = subprocess.run(["e2fsck", "-f", "-n", self.image], capture_output=True, check=False, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def why_not() -> str:
    """Why power cannot be cut here; empty if it can."""
    if os.geteuid() != 0:
        return "mounting a disk takes root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"there is no {', '.join(missing)}"
    free = subprocess.run(["losetup", "--find"], capture_output=True, check=False, text=True)
    return "" if free.returncode == 0 else f"there is no loop device: {free.stderr.strip()}"


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""  # detached meanwhile


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
