"""meta.json: what everybody may know of a run, written by its dispatcher, then by its supervisor alone."""

import os
import re
from typing import Any

import msgspec
from msgspec import Struct, field

from fairlead.base.errors import FairleadError
from fairlead.base.files import opened, read_plain, write_atomically
from fairlead.base.identity import ProcessId
from fairlead.queue.states import FINAL, Status

NAME = "meta.json"
#: The status of a run that was taken back before it started.
VOID = "void"
#: The reason of one that was taken back by its supervisor, since the machine could not start its agent.
NO_ROOM = "no_room"
LIMIT = 16 << 20
#: What a person would read is indented; beyond this, indenting deep data could make it many times as long.
_READABLE = 8192


class CorruptMetaError(FairleadError):
    """meta.json cannot be read as one."""


class MissingMetaError(CorruptMetaError):
    """There is no meta.json."""


class Supervisor(Struct, frozen=True):
    """The process that looks after the run."""

    pid: int
    start: int
    #: Seconds of processor time that what it looked after before has used.
    used_before: float = 0.0

    @property
    def process(self) -> ProcessId:
        """Who it is, as long as the machine is up."""
        return ProcessId(self.pid, self.start)


class Heartbeat(Struct, frozen=True):
    """A sign of life: what counts is that `seq` changes, not the time in it."""

    seq: int = 0
    at: str = ""


class Meta(Struct, kw_only=True):
    """The state of one run."""

    id: str
    #: claimed, running, then how it ended; `void`: taken back before it started.
    status: str
    user: str
    project: str
    agent: str
    attempt: int
    lock_id: str
    token: int
    host: str
    boot_id: str
    #: CLOCK_BOOTTIME at the claim: what the held time is counted from.
    claimed_boot: float
    claimed_at: int
    #: The same at the start: what the time limit is counted from.
    started_boot: float | None = None
    lock_released: bool = False
    #: The unit that its agent runs in, and who starts and ends that; empty: it is a child of its supervisor.
    unit: str = ""
    unit_by: str = ""
    supervisor: Supervisor | None = None
    pid: int | None = None
    #: Every process of the run that was seen at the last beat, for cleaning up after a supervisor that died.
    processes: list[ProcessId] = field(default_factory=list)
    heartbeat: Heartbeat = Heartbeat()
    started_at: int | None = None
    finished_at: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    reason: str = ""
    error: str = ""
    held: float = 0.0
    cost: float | None = None
    progress: str = ""
    artifacts: list[str] = field(default_factory=list)
    result: Any = None
    log_tail: str = ""

    @property
    def ended(self) -> bool:
        """Whether the supervisor saw the end of everything."""
        return self.status in FINAL

    @property
    def final_status(self) -> Status:
        """How it ended."""
        return Status(self.status)


_decode = msgspec.json.Decoder(Meta).decode
#: Of two values of the same length the one that is written first; what may come before it holds no quotes.
_HELD, _RELEASED = re.compile(rb'"lock_released": ?(false)'), b"true "


def read_meta(run_dir: str) -> Meta:
    """Read a run's meta.json."""
    path = os.path.join(run_dir, NAME)
    try:
        return _decode(read_plain(path, LIMIT))
    except FileNotFoundError as error:
        raise MissingMetaError(f"{path} is not there") from error
    except (ValueError, FairleadError) as error:
        raise CorruptMetaError(f"{path} cannot be read: {error}") from error


def write_meta(run_dir: str, meta: Meta, *, synced: bool) -> None:
    """Replace a run's meta.json; `synced`: with content that a power cut cannot take, unlike its name."""
    data = msgspec.json.encode(meta)
    data = msgspec.json.format(data, indent=2) if len(data) <= _READABLE else data
    write_atomically(os.path.join(run_dir, NAME), data, synced=synced)


def touch_meta(run_dir: str) -> None:
    """A sign of life that needs no room on the disk."""
    os.utime(os.path.join(run_dir, NAME))


def last_touch(run_dir: str) -> int:
    """When meta.json was last written or touched, in nanoseconds; 0 if it is not there."""
    try:
        return os.stat(os.path.join(run_dir, NAME)).st_mtime_ns
    except FileNotFoundError:
        return 0


def note_release(run_dir: str) -> None:
    """Let an ended run's meta.json say that its lock is free.

    Five bytes in their place: nobody else writes to it any more, and half of a change cannot be seen.
    """
    with opened(os.path.join(run_dir, NAME), os.O_RDWR | os.O_NOFOLLOW) as fd:
        if held := _HELD.search(os.pread(fd, _READABLE, 0)):
            os.pwrite(fd, _RELEASED, held.start(1))
