"""What services ask of the porter, who may do what only root can, and of the clerks whom he lends out.

A clerk is a process that has become one of the users for good: whatever a user can write is read, written and
removed by nobody else.
"""

import msgspec
from msgspec import Struct

from fairlead.base.errors import UsageError
from fairlead.systemd.unit import Order, Started, State

#: Messages between services and the porter: an order with its environment is the longest.
LONGEST = 8 << 20
#: Where the drop-offs of a user's runs are, in his spool.
RUNS = ".runs"


# ---------------------------------------------------------------------- to the porter


class Hire(Struct, frozen=True, tag=True):
    """A clerk for this user, who talks over the descriptor that comes along."""

    user: str


class StartUnit(Struct, frozen=True, tag=True):
    """Start a unit; standard input, output and error come along."""

    order: Order


class AskState(Struct, frozen=True, tag=True):
    """What is known of a unit."""

    name: str


class SignalUnit(Struct, frozen=True, tag=True):
    """Send a signal to all processes of a unit."""

    name: str
    number: int


class ForgetUnit(Struct, frozen=True, tag=True):
    """End what is left of a unit, and forget it."""

    name: str


class FenceUnit(Struct, frozen=True, tag=True):
    """See to it that no unit of that name is started any more."""

    name: str


class ListUnits(Struct, frozen=True, tag=True):
    """The names of all units of agents."""


class MakeSpools(Struct, frozen=True, tag=True):
    """See to it that everybody who may use the queue has a spool; the names of all who have one."""


Request = Hire | StartUnit | AskState | SignalUnit | ForgetUnit | FenceUnit | ListUnits | MakeSpools


class Done(Struct, frozen=True, tag=True):
    """It is done; for a fence: whether there was no unit."""

    was_free: bool = True


class Names(Struct, frozen=True, tag=True):
    """A list of names."""

    names: list[str]


class Failed(Struct, frozen=True, tag=True):
    """It was not done, and why: `exists`, `not_started` with systemd's status, `no_manager`, or `refused`."""

    kind: str
    error: str
    status: int = 0


Answer = Done | Names | Failed | Started | State


# ---------------------------------------------------------------------- to a clerk


class Take(Struct, frozen=True, tag=True):
    """Hand over files that were dropped, so many and so many bytes at the most."""

    most: int
    most_bytes: int
    #: The largest file that is accepted.
    file_bytes: int
    #: Seconds for which a file must have been quiet, unless nobody has it open.
    settle: float


class Settle(Struct, frozen=True, tag=True):
    """What became of files that were handed over: those that are accepted may go, the others are put aside."""

    accepted: list[str]
    refused: dict[str, str]


class Note(Struct, frozen=True, tag=True):
    """Lay a note beside the refused files."""

    name: str
    text: str


class Prepare(Struct, frozen=True, tag=True):
    """Make the drop-off of a run with these files in it, and look whether the agent can be started there."""

    run: str
    files: dict[str, bytes]
    cwd: str
    program: str
    path: str
    #: Of the files, the one that is to be standard input.
    stdin: str = ""


class Read(Struct, frozen=True, tag=True):
    """What an agent has left in its drop-off: the end of its progress, and if wanted all else."""

    run: str
    progress_bytes: int
    result_bytes: int = 0
    cwd: str = ""
    patterns: tuple[str, ...] = ()
    most: int = 0


class Clear(Struct, frozen=True, tag=True):
    """Remove the drop-off of a run."""

    run: str


class Prune(Struct, frozen=True, tag=True):
    """Remove what was refused before that time, in seconds, and drop-offs of other runs than these."""

    before: float
    runs: list[str]


Errand = Take | Settle | Note | Prepare | Read | Clear | Prune


class Dropped(Struct, frozen=True, tag=True):
    """One file that was dropped, with its content, or why it cannot be read."""

    id: str
    name: str
    data: bytes = b""
    error: str = ""


class Delivery(Struct, frozen=True, tag=True):
    """Files that were dropped, and what else is there."""

    files: list[Dropped]
    #: There are more complete ones.
    more: bool = False
    #: Some are still being written.
    settling: bool = False
    #: How many files lie in the spool, and how large they are together.
    count: int = 0
    size: int = 0


class Ready(Struct, frozen=True, tag=True):
    """The drop-off is made; the program's path. What is to be standard input comes along, if that was wanted."""

    program: str


class Left(Struct, frozen=True, tag=True):
    """What an agent has left."""

    progress: bytes = b""
    result: bytes | None = None
    #: Why there is a result that cannot be read.
    problem: str = ""
    artifacts: list[str] = []


class Refused(Struct, frozen=True, tag=True):
    """The errand could not be done: the error's number and words, and the file that it is about."""

    number: int
    error: str
    path: str = ""


class Fine(Struct, frozen=True, tag=True):
    """It is done."""


Reply = Delivery | Ready | Left | Refused | Fine


class TooLongError(UsageError):
    """A task's orders are too long to be handed on; shorten its prompt, its command or its environment."""


def encode(message: Struct) -> bytes:
    """A message as it is sent. One that would be cut off is not: its sender can say what is wrong, nobody else can."""
    data = msgspec.msgpack.encode(message)
    if len(data) > LONGEST:
        raise TooLongError
    return data


decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_errand = msgspec.msgpack.Decoder(Errand).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
