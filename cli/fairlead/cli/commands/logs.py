"""fairlead logs."""

import codecs
import os
import sys

from fairlead.base.errors import NotFoundError
from fairlead.base.files import opened
from fairlead.base.text import visible
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, is_terminal, parser
from fairlead.cli.options import add_id, positive
from fairlead.cli.output import print_json_line
from fairlead.cli.waiting import follow
from fairlead.conductor.output import STDERR, STDOUT
from fairlead.conductor.rundir import find_dir
from fairlead.queue.states import Status

_CHUNK = 1 << 16
#: While following, look this often for more: agents do not ring for every line.
LOOK_AGAIN = 0.2


class NoLogError(NotFoundError):
    """There is no output to show."""


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
    wanted = [name for name, chosen in ((STDOUT, args.stdout), (STDERR, args.stderr)) if chosen]
    access = Access()
    output = Output(access, args.id, wanted or [STDOUT, STDERR], args.attempt, as_json=args.json)
    if args.follow:
        follow(access.paths.bells, "logs", output.print_more, LOOK_AGAIN)
    else:
        output.print_new(must_exist=True)
    return 0


class Output:
    """The output of one task, printed as far as it has grown."""

    def __init__(self, access: Access, part: str, names: list[str], attempt: int | None, *, as_json: bool) -> None:
        self._access = access
        self._task = access.task(part)
        self._attempt = attempt
        self._as_json = as_json
        self._files = {name: _File(name) for name in names}

    def print_more(self) -> bool:
        """Print what has come; False if that was all."""
        # Asked before reading: what was written before the end is read after it.
        self._task = self._access.task(self._task.id)
        goes_on = not self._access.is_over(self._task)
        self.print_new(must_exist=not goes_on)
        return goes_on

    def print_new(self, *, must_exist: bool) -> None:
        """Print what was added since the last look."""
        number = self._attempt or self._task.attempt
        folder = find_dir(self._access.paths.conductor, self._task.spec.project, self._task.id, number)
        if folder is None and must_exist:
            raise NoLogError(self._nothing(number))
        if folder is not None:
            for file in self._files.values():
                file.print_new(folder, number, as_json=self._as_json)

    def _nothing(self, number: int) -> str:
        task = self._task
        if task.status is Status.QUEUED and not self._attempt:
            return f"task {task.id} is queued and has no output yet; `fairlead logs -f {task.id}` waits for it."
        return f"task {task.id} is {task.status} and has no output of attempt {number}."


class _File:
    """One output file of whichever attempt is the latest."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = name.partition(".")[0]
        self._attempt = 0
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def print_new(self, folder: str, attempt: int, *, as_json: bool) -> None:
        """Print what this attempt has added."""
        if attempt != self._attempt:
            self._attempt, self._read = attempt, 0
            self._decoder.reset()
        try:
            with opened(os.path.join(folder, self._name), os.O_RDONLY) as fd:
                while data := os.pread(fd, _CHUNK, self._read):
                    self._read += len(data)
                    self._write(data, as_json=as_json)
        except FileNotFoundError:
            return

    def _write(self, data: bytes, *, as_json: bool) -> None:
        """As it is into a pipe; made safe for a terminal, or put into JSON."""
        if as_json:
            print_json_line({"stream": self._stream, "text": self._decoder.decode(data)})
        elif is_terminal():
            sys.stdout.write(visible(self._decoder.decode(data)))
            sys.stdout.flush()
        else:
            stream = sys.stderr if self._name == STDERR else sys.stdout
            stream.buffer.write(data)
            stream.flush()
