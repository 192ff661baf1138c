"""fairlead logs."""

import os
import select
import sys

from fairlead.base.errors import NotFoundError
from fairlead.base.files import opened
from fairlead.base.text import visible
from fairlead.cli.access import Access
from fairlead.cli.arguments import is_terminal, parser
from fairlead.cli.waiting import listening
from fairlead.conductor.output import STDERR, STDOUT
from fairlead.conductor.rundir import find_dir
from fairlead.queue.states import ACTIVE

_CHUNK = 1 << 16
#: While following, look this often for more: agents do not ring for every line.
LOOK_AGAIN = 0.2


class NoLogError(NotFoundError):
    """There is no output to show."""


def main(words: list[str]) -> int:
    """Print what a task's agent wrote."""
    made = parser("logs", "What a task's agent wrote.", ["fairlead logs ID", "fairlead logs -f ID"], json=False)
    made.add_argument("id", metavar="ID", help="the task's id, or enough of it")
    made.add_argument("-f", "--follow", action="store_true", help="go on until the task has ended")
    made.add_argument("--stderr", action="store_true", help="only standard error")
    made.add_argument("--stdout", action="store_true", help="only standard output")
    made.add_argument("--attempt", type=int, help="of this attempt (the last)")
    args = made.parse_args(words)
    names = (
        [STDOUT]
        if args.stdout and not args.stderr
        else [STDERR]
        if args.stderr and not args.stdout
        else [STDOUT, STDERR]
    )
    Show(Access(), args.id, names, args.attempt).run(follow=args.follow)
    return 0


class Show:
    """Prints the output files of one attempt, as far as they have grown."""

    def __init__(self, access: Access, part: str, names: list[str], attempt: int | None) -> None:
        self.access = access
        self.names = names
        self.task = access.task(part)
        self.attempt = attempt
        self.read: dict[str, int] = dict.fromkeys(names, 0)

    def run(self, *, follow: bool) -> None:
        """Print what is there, and what comes."""
        if not follow:
            self.print_new(must_exist=True)
            return
        with listening(self.access.paths.bells, "logs") as listener:
            while True:
                # Asked before reading: what was written before the end is read after it.
                goes_on = self.goes_on()
                self.print_new(must_exist=not goes_on)
                if not goes_on:
                    return
                select.select([listener], [], [], LOOK_AGAIN)
                listener.take()

    def goes_on(self) -> bool:
        """Whether more may come."""
        self.task = self.access.task(self.task.id)
        return self.task.status in ACTIVE or self.task.status == "queued"

    def print_new(self, *, must_exist: bool) -> None:
        """Print what was added since the last look."""
        number = self.attempt or self.task.attempt
        folder = find_dir(self.access.paths.conductor, self.task.spec.project, self.task.id, number)
        if folder is None:
            if must_exist:
                raise NoLogError(f"task {self.task.id} is {self.task.status} and has no output of attempt {number}.")
            return
        for name in self.names:
            self._print_file(os.path.join(folder, name), name)

    def _print_file(self, path: str, name: str) -> None:
        try:
            with opened(path, os.O_RDONLY) as fd:
                while data := os.pread(fd, _CHUNK, self.read[name]):
                    self.read[name] += len(data)
                    _write(data, error=name == STDERR)
        except FileNotFoundError:
            return


def _write(data: bytes, *, error: bool) -> None:
    """As it is into a pipe; made safe for a terminal."""
    stream = sys.stderr if error and not is_terminal() else sys.stdout
    if is_terminal():
        stream.write(visible(data.decode("utf-8", "replace")))
    else:
        stream.buffer.write(data)
    stream.flush()
