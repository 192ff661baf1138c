"""fairlead submit."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fairlead.base.clock import SystemClock
from fairlead.base.errors import FairleadError, UsageError
from fairlead.base.identity import user_name
from fairlead.base.text import one_line
from fairlead.cli.access import making, reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.commands.wait import wait_for
from fairlead.cli.documents import NAME, document
from fairlead.cli.options import split_command
from fairlead.cli.output import moment, note, print_json, say
from fairlead.cli.quick import NoInstanceError, asker, is_direct
from fairlead.cli.waiting import tell_of_stopped
from fairlead.config.loading import load
from fairlead.config.paths import find_paths
from fairlead.config.places import directory_of
from fairlead.desk.submitting import File, check_files, foretold, told
from fairlead.queue.errors import StoreBrokenError, StoreBusyError, StoreUnavailableError
from fairlead.queue.instance import StoreMissingError
from fairlead.queue.services import how_to_start
from fairlead.queue.spooling import Spooling
from fairlead.queue.taskfile import FORMATS

Data = dict[str, Any]

#: What makes a task without a file: the key in a task file, what its value is, and what it means.
_KEYS = {
    "prompt": ("TEXT", "what the agent is asked to do"),
    "title": ("TEXT", "what lists show; else the prompt's beginning"),
    "agent": ("NAME", "who does it; else the project's agent, or default_agent"),
    "project": ("NAME", "in whose directory; else default_project's"),
    "user": ("NAME", "whose task it is; else yours"),
    "action": ("NAME", "what kind of task it is; else the agent's name"),
    "priority": ("WORD", "critical, high, medium, low, or 0 (first) to 10"),
    "run_at": ("TIME", "not before then: ISO 8601, or +2h"),
    "timeout": ("TIME", "how long it may take, like 45m"),
}
#: What a store that is busy, out of reach, damaged or lost says: the files can wait for it.
_AWAY = (StoreBusyError, StoreUnavailableError, StoreBrokenError, StoreMissingError)
#: More than any setting allows: a file that never ends is not read to its end.
_MOST = 1 << 30
_SPOOLED = "the store is away: the file waits in the spool and is taken in when it is back"


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "submit",
        "Put tasks into the queue, from files or from options. When this returns, they are there for good: their ids"
        " are printed. Of several files all are taken in, or none if one is wrong. A task runs in the directory of its"
        " project, not in yours; the default project's is FAIRLEAD_HOME unless the settings name another.",
        [
            "fairlead submit task.yaml",
            "fairlead submit --prompt 'Mend the login test' --agent claude --project website",
            "fairlead submit --wait --project website -- make test",
            "generate-tasks | fairlead submit - --format json",
        ],
    )
    made.usage = "fairlead submit [OPTIONS] FILE ...\n       fairlead submit [OPTIONS] --prompt TEXT | -- COMMAND ..."
    made.add_argument("files", metavar="FILE", nargs="*", help="task files (YAML, JSON, Markdown); - is standard input")
    made.add_argument("--format", choices=("yaml", "json", "md"), default="yaml", help="of standard input (yaml)")
    for key, (metavar, meaning) in _KEYS.items():
        made.add_argument(f"--{key.replace('_', '-')}", metavar=metavar, help=f"without a file: {meaning}")
    made.add_argument("--idempotent", action="store_true", help="without a file: running it twice does no harm")
    made.add_argument("--wait", action="store_true", help="wait for the end; exit with 1 unless all completed")
    made.add_argument("--dry-run", action="store_true", help="say what would happen, and submit nothing")
    return made


def main(words: list[str]) -> int:
    """Put tasks into the queue."""
    own, command = split_command(words)
    args = make_parser().parse_args(own)
    files = _files(args, command)
    if args.dry_run:
        _tell_of_future(files, _foretell(files), as_json=args.json)
        return 0
    done = _submit(files)
    _tell(files, done, as_json=args.json, waits=args.wait)
    if args.wait:
        return wait_for(reading(), [one["id"] for one in done], timeout=None, as_json=args.json)
    _tell_of_no_daemon()
    return 0


def _tell_of_no_daemon() -> None:
    """Say so if nobody takes care of the tasks just now."""
    with suppress(FairleadError):  # the store may be away
        tell_of_stopped(reading(), "daemon")


def _submit(files: Sequence[File]) -> list[Data]:
    """Hand the files in; while the store is away, lay them where intake finds them."""
    try:
        with making() as desk:
            return desk.submit(files)
    except _AWAY as away:
        if not is_direct(find_paths()):
            raise
        note(str(away))
        spooling = _spooling()
        check_files(files, spooling.check)
        done = spooling.submit([(file.name, file.data) for file in files])
        return [told(file, one) for file, one in zip(files, done, strict=True)]


def _foretell(files: Sequence[File]) -> list[Data]:
    """What would become of the files; where there is no instance yet, none is made for that."""
    try:
        return reading().foretell(files)
    except NoInstanceError:
        spooling = _spooling()
        parsed = check_files(files, spooling.check)
        prospect = f"would wait: the daemon does not run; {how_to_start(spooling.paths, 'daemon')}"
        directories = [directory_of(one.spec.project, spooling.config, spooling.paths, one.spec.user) for one in parsed]
        return [foretold(*each, prospect) for each in zip(files, parsed, directories, strict=True)]


def _spooling() -> Spooling:
    """What needs no store, and makes none."""
    paths = find_paths()
    return Spooling(paths, load(paths, os.environ).config, SystemClock(), user_name(asker()))


# ---------------------------------------------------------------------- what is submitted


def _files(args: argparse.Namespace, command: list[str]) -> list[File]:
    given = {key: value for key in _KEYS if (value := getattr(args, key)) is not None}
    given |= {"command": command} if command else {}
    given |= {"idempotent": True} if args.idempotent else {}
    if args.files and given:
        names = ", ".join(given)
        raise UsageError(f"give task files or options that make one task, not both: the files say what {names} is.")
    if args.files:
        _refuse_command(args.files)
        return [_read(path, args.format) for path in args.files]
    if not given:
        raise UsageError("say what to submit: task files, --prompt TEXT, or -- COMMAND.")
    return [File(NAME, document({"source": "submit"} | given), made=True)]


def _refuse_command(words: list[str]) -> None:
    """Words of which the first is no file, and does not look like one, are a command without its --."""
    first = words[0]
    if first != "-" and os.path.splitext(first)[1].lower() not in FORMATS and not os.path.lexists(first):
        command = f"fairlead submit -- {shlex.join(words)}"
        raise UsageError(f"there is no file {first}, nothing was submitted; to run a command: `{command}`.")


def _read(path: str, form: str) -> File:
    if path == "-":
        return File(f"stdin.{form}", sys.stdin.buffer.read(_MOST))
    try:
        with open(path, "rb") as file:
            return File(path, file.read(_MOST))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; nothing was submitted.") from error


# ---------------------------------------------------------------------- what is told


def _tell_of_future(files: Sequence[File], rows: Sequence[Data], *, as_json: bool) -> None:
    """What would become of each file."""
    lines = []
    for file, row in zip(files, rows, strict=True):
        name = "" if file.made else f"{file.name}: "
        lines += [f"{name}{_summary(row)}", f"  in {row['directory']}", f"  {row['prospect']}"]
        lines += [f"  note: {text}" for text in row["notes"]]
    say(rows, "\n".join(one_line(line, 500) for line in lines), as_json=as_json)


def _summary(row: Data) -> str:
    later = f", not before {moment(row['run_at'])}" if row["run_at"] else ""
    who = f"for {row['user']} in project {row['project']}, agent {row['agent']}, {row['priority']} priority"
    return f"{row['title']!r} {who}{later}"


def _tell(files: Sequence[File], done: Sequence[Data], *, as_json: bool, waits: bool) -> None:
    """The ids; a program that waits gets them with how the tasks ended, as one document."""
    if as_json and not waits:
        rows = zip(files, done, strict=True)
        print_json([{"file": f.name} | {name: o[name] for name in ("id", "spooled", "notes")} for f, o in rows])
    for one in done:
        if not as_json:
            print(one["id"], flush=True)
        for text in (
            *one["notes"],
            *((one["warning"],) if one["warning"] else ()),
            *((_SPOOLED,) if one["spooled"] else ()),
        ):
            note(text)
