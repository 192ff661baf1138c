"""fairlead logs."""

import codecs
import sys

from fairlead.base.text import visible
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, is_terminal, parser
from fairlead.cli.options import add_id, positive
from fairlead.cli.output import print_json_line
from fairlead.cli.waiting import follow
from fairlead.desk.output import NoLogError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


#: While following, look this often for more: agents do not ring for every line.
LOOK_AGAIN = 0.2


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "logs",
        "What a task's agent wrote: as it is in a pipe, with control characters spelled out on a terminal."
        " --json prints one object with `stream` and `text` per piece.",
        ["fairlead logs ID", "fairlead logs -f ID", "fairlead logs --stderr ID | less"],
    )
    add_id(made)
    made.add_argument("-f", "--follow", action="store_true", help="go on until the task has ended")
    made.add_argument("--stdout", action="store_true", help="only standard output")
    made.add_argument("--stderr", action="store_true", help="only standard error")
    made.add_argument("--attempt", metavar="N", type=positive, help="of this attempt (the last)")
    return made


def main(words: list[str]) -> int:
    """Print what a task's agent wrote."""
    args = make_parser().parse_args(words)
    wanted = [name for name, chosen in (("stdout", args.stdout), ("stderr", args.stderr)) if chosen]
    desk = reading()
    output = Output(desk, args.id, wanted or ["stdout", "stderr"], args.attempt, as_json=args.json)
    if args.follow:
        follow(desk, "logs", output.print_new, LOOK_AGAIN)
    else:
        output.print_new()
        output.need()
    return 0


class Output:
    """The output of one task, printed as far as it has grown."""

    def __init__(self, desk: "AnyDesk", part: str, streams: list[str], attempt: int | None, *, as_json: bool) -> None:
        self._task_id = desk.find(part)["id"]
        self._streams = [_Stream(desk, self._task_id, name, attempt, as_json=as_json) for name in streams]

    def print_new(self) -> bool:
        """Print what was added since the last look; False if that was all."""
        going_on = [stream.print_new() for stream in self._streams]
        return any(going_on)

    def need(self) -> None:
        """Refuse to show nothing of a task that has not begun."""
        if not any(stream.attempt for stream in self._streams):
            waits = f"`fairlead logs -f {self._task_id}` waits for it."
            raise NoLogError(f"task {self._task_id} is queued and has no output yet; {waits}")


class _Stream:
    """One stream of whichever attempt is the latest."""

    def __init__(self, desk: "AnyDesk", task_id: str, name: str, attempt: int | None, *, as_json: bool) -> None:
        self._desk = desk
        self._task_id = task_id
        self._name = name
        self._wanted = attempt
        self._as_json = as_json
        #: Of which attempt output was last read; 0 if there was none.
        self.attempt = 0
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def print_new(self) -> bool:
        """Print what this attempt has added; False if that was all."""
        while True:
            piece = self._desk.logs(self._task_id, self._name, self._wanted, self._read)
            if piece.attempt != self.attempt and self._read:
                self._read = 0  # another attempt begins at its own beginning
                self._decoder.reset()
            elif piece.data:
                self._read = piece.next
                self._write(piece.data)
            else:
                self.attempt = piece.attempt
                return not piece.is_over
            self.attempt = piece.attempt

    def _write(self, data: bytes) -> None:
        """As it is into a pipe; made safe for a terminal, or put into JSON."""
        if self._as_json:
            print_json_line({"stream": self._name, "text": self._decoder.decode(data)})
        elif is_terminal():
            sys.stdout.write(visible(self._decoder.decode(data)))
            sys.stdout.flush()
        else:
            stream = sys.stderr if self._name == "stderr" else sys.stdout
            stream.buffer.write(data)
            stream.flush()
