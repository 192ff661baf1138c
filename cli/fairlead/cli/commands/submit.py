"""fairlead submit."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple

from fairlead.base.clock import SystemClock
from fairlead.base.errors import UsageError
from fairlead.base.ids import new_id
from fairlead.base.text import one_line
from fairlead.cli.access import Access, open_instance, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.commands.wait import wait_for
from fairlead.cli.documents import NAME, document, said
from fairlead.cli.options import split_command
from fairlead.cli.output import moment, note, print_json, say
from fairlead.cli.quick import NoInstanceError
from fairlead.cli.waiting import tell_of_stopped
from fairlead.config.loading import load
from fairlead.config.paths import Paths, find_paths
from fairlead.config.places import directory_of
from fairlead.queue.decide import Reason
from fairlead.queue.errors import StoreBrokenError, StoreBusyError, StoreUnavailableError
from fairlead.queue.instance import StoreMissingError
from fairlead.queue.operations import Submitted, Submitting
from fairlead.queue.record import spec_record
from fairlead.queue.services import how_to_start
from fairlead.queue.spooling import Spooling
from fairlead.queue.states import Status
from fairlead.queue.task import PRIORITIES, Spec, Task
from fairlead.queue.taskfile import FORMATS, Parsed
from fairlead.queue.why import Why

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


class File(NamedTuple):
    """A task file by name and content; `made` if options made it."""

    name: str
    data: bytes
    made: bool = False


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
        _foretell(files, as_json=args.json)
        return 0
    done = _submit(files)
    _tell(files, done, as_json=args.json, waits=args.wait)
    if args.wait:
        spooled = {one.id for one in done if one.spooled}
        return wait_for(Access(), [one.id for one in done], spooled, timeout=None, as_json=args.json)
    tell_of_stopped(find_paths(), "daemon")
    return 0


def _submit(files: Sequence[File]) -> list[Submitted]:
    """Hand the files to the store; while it is away, lay them where intake finds them."""
    given = [(file.name, file.data) for file in files]
    try:
        instance = open_instance()
    except _AWAY as away:
        note(str(away))
        spooling = _spooling()
        _check(spooling, files)
        return spooling.submit(given)
    submitting = Submitting(instance, who())
    _check(submitting, files)
    done = submitting.submit(given)
    instance.close()
    return done


def _spooling() -> Spooling:
    """What needs no store, and makes none."""
    paths = find_paths()
    return Spooling(paths, load(paths, os.environ).config, SystemClock(), who())


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


def _check(submitting: Submitting | Spooling, files: Sequence[File]) -> list[Parsed]:
    """Read every file as intake would; raises with all that is wrong in any of them."""
    parsed, wrong = [], []
    for file in files:
        try:
            parsed.append(_check_one(submitting, file))
        except UsageError as error:
            wrong.append(str(error))
    if wrong and len(files) > 1:
        wrong.append("nothing was submitted.")
    if wrong:
        raise UsageError("\n".join(wrong))
    return parsed


def _check_one(submitting: Submitting | Spooling, file: File) -> Parsed:
    if file.made:
        return said(lambda: submitting.check(file.name, file.data))
    return submitting.check(file.name, file.data)


# ---------------------------------------------------------------------- what is told


def _foretell(files: Sequence[File], *, as_json: bool) -> None:
    """What would become of each file."""
    spooling = _spooling()
    paths = spooling.paths
    rows, lines = [], []
    for file, one in zip(files, _check(spooling, files), strict=True):
        directory = directory_of(one.spec.project, spooling.config, paths, one.spec.user)
        prospect = _prospect(paths, one.spec)
        more = {"directory": directory, "notes": one.notes, "prospect": prospect}
        rows.append({"file": file.name} | spec_record(one.spec) | more)
        name = "" if file.made else f"{file.name}: "
        lines += [f"{name}{_summary(one.spec)}", f"  in {directory}", f"  {prospect}"]
        lines += [f"  note: {text}" for text in one.notes]
    say(rows, "\n".join(one_line(line, 500) for line in lines), as_json=as_json)


def _summary(spec: Spec) -> str:
    later = f", not before {moment(spec.run_at)}" if spec.run_at else ""
    priority = PRIORITIES[spec.priority]
    return f"{spec.title!r} for {spec.user} in project {spec.project}, agent {spec.agent}, {priority} priority{later}"


def _prospect(paths: Paths, spec: Spec) -> str:
    """What would keep it from starting at once, if it were queued now."""
    try:
        access = Access(paths)
    except NoInstanceError:
        return f"would wait: the daemon does not run; {how_to_start(paths.bells, 'daemon')}"
    now = access.clock.wall_ms()
    task = Task(id=new_id(now), seq=1 << 62, spec=spec, status=Status.QUEUED, version=1, created_at=now, updated_at=now)
    obstacles = Why(paths, access.store, access.clock).answer(task).obstacles
    access.store.close()
    # A user without due tasks is told to have none: that is no obstacle, since this would be one.
    real = [one.detail for one in obstacles if spec.run_at or one.reason is not Reason.NOT_DUE]
    return f"would wait: {real[0]}" if real else "would start at once"


def _tell(files: Sequence[File], done: Sequence[Submitted], *, as_json: bool, waits: bool) -> None:
    """The ids; a program that waits gets them with how the tasks ended, as one document."""
    both = list(zip(files, done, strict=True))
    if as_json and not waits:
        print_json([{"id": o.id, "file": f.name, "spooled": o.spooled, "notes": o.notes} for f, o in both])
    for _, one in both:
        if not as_json:
            print(one.id, flush=True)
        for text in (*one.notes, *((one.warning,) if one.warning else ()), *((_SPOOLED,) if one.spooled else ())):
            note(text)
