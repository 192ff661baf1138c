"""Real porters for tests: a desk that becomes real users, where the tests are root; clerks of one's own, elsewhere."""

import os
import pwd
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.patience import eventually
from tests.support.programs import started

from fairlead.base import frames
from fairlead.base.identity import read_stat
from fairlead.conductor import errands
from fairlead.conductor.porter import Porter, run_errand
from fairlead.conductor.tree import children_of

#: Users that every system has; none of them is anybody's.
USERS = ("daemon", "bin", "nobody")


class RealPorter:
    """A porter's desk as a process, with the spools of real users in a place that all of them can reach."""

    def __init__(self, place: Path, process: "subprocess.Popen[bytes]") -> None:
        self.place = place
        self.process = process
        self.path = str(place / "porter.sock")
        self.spool = place / "spool"

    def client(self) -> Porter:
        """A line to it, as one of our services has."""
        return Porter(self.path)

    def connect(self) -> socket.socket:
        """A bare line to it."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(10.0)
        line.connect(self.path)
        return line

    def clerks(self) -> list[int]:
        """The pids of the clerks that are out."""
        alive = {pid: read_stat(pid) for pid in children_of(self.process.pid)}
        return [pid for pid, stat in alive.items() if stat and stat.state != "Z"]

    def wait_clerks(self, count: int) -> list[int]:
        """Wait until so many clerks are out."""
        eventually(lambda: len(self.clerks()) == count, f"there are never {count} clerks")
        return self.clerks()

    def fds(self) -> int:
        """How many descriptors the desk has."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log(self) -> str:
        """What it has logged."""
        return (self.place / "log").read_text()

    def allow_descriptors(self, count: int) -> None:
        """Let it have no more descriptors than these."""
        _, most = resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (count, most))

    def drop(self, user: str, name: str, data: bytes) -> Path:
        """Drop a file as a user does, whole."""
        entry = pwd.getpwnam(user)
        hidden = self.spool / user / f".{name}"
        hidden.write_bytes(data)
        os.chown(hidden, entry.pw_uid, entry.pw_gid)
        return hidden.rename(self.spool / user / name)

    def run(self, user: str, *wanted: errands.Errand) -> list[errands.Reply]:
        """Send one clerk of a user on errands."""
        with self.client().hire(user) as line:
            return [run_errand(line, one)[0] for one in wanted]


@contextmanager
def real_porter(*users: str, uid: int = 0) -> Iterator[RealPorter]:
    """A porter for these users, who listens to that uid."""
    if os.geteuid() != 0:
        pytest.skip("becoming other users takes root")
    place = Path(tempfile.mkdtemp(prefix="fairlead-porter-"))
    try:
        place.chmod(0o711)
        (place / "spool").mkdir(mode=0o711)
        with real_process(place, users, uid) as process:
            yield RealPorter(place, process)
    finally:
        shutil.rmtree(place)


@contextmanager
def real_process(place: Path, users: tuple[str, ...], uid: int) -> Iterator["subprocess.Popen[bytes]"]:
    """The process of a porter; one that went before has left its door."""
    path = place / "porter.sock"
    path.unlink(missing_ok=True)
    with started("porter", "desk", place, path, uid, *users) as process:
        yield process


@contextmanager
def own_clerks(place: Path) -> Iterator[Porter]:
    """A way to clerks that are the tests' own user, over a spool in this place."""
    (place / "spool").mkdir()
    path = str(place / "porter.sock")
    with started("porter", "own_clerks", place / "spool", path):
        yield Porter(path)


def as_user(user: str, do: Callable[[], object]) -> int:
    """Do something in a process that has become that user; returns how it exits: 0 if that went well."""
    entry = pwd.getpwnam(user)
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            do()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ask(line: socket.socket, data: bytes, fds: tuple[int, ...] = ()) -> errands.Answer:
    """Say something to a desk, whatever it is, and hear the answer."""
    frames.send(line, data, fds)
    answer: errands.Answer = errands.decode_answer(frames.receive(line, errands.LONGEST)[0])
    return answer
