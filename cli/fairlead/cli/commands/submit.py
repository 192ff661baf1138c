"""fairlead submit."""

import argparse
import json
import os
import sys

from fairlead.base.errors import UsageError
from fairlead.base.files import opened
from fairlead.cli.access import Access, open_instance, who
from fairlead.cli.arguments import parser
from fairlead.cli.commands.wait import wait_for
from fairlead.cli.output import print_json
from fairlead.queue.operations import Submitted, Submitting
from fairlead.queue.record import spec_record

_KEYS = ("title", "agent", "action", "project", "user", "priority", "run_at", "timeout")
#: More than any setting allows: a file that never ends is not read to its end.
_MOST = 1 << 30


def main(words: list[str]) -> int:
    """Put tasks into the queue."""
    made = parser(
        "submit",
        "Put tasks into the queue. When this returns, they are there for good.",
        [
            "fairlead submit task.yaml",
            "fairlead submit --prompt 'Mend the login test' --agent claude --project website",
            "fairlead submit --wait -- make test",
            "generate-tasks | fairlead submit - --format json",
        ],
    )
    _add_arguments(made)
    own, command = _split(words)
    args = made.parse_args(own)
    files = _files(args, command)
    instance = open_instance()
    submitting = Submitting(instance, who())
    if args.dry_run:
        return _dry_run(submitting, files, as_json=args.json)
    done = submitting.submit(files)
    _tell(done, as_json=args.json and not args.wait)
    instance.close()
    if not args.wait:
        return 0
    return wait_for(Access(), [one.id for one in done], timeout=None, json=args.json)


def _add_arguments(made: argparse.ArgumentParser) -> None:
    made.add_argument("files", metavar="FILE", nargs="*", help="task files (YAML, JSON, Markdown); - is standard input")
    made.add_argument("--format", choices=("yaml", "json", "md"), default="yaml", help="of standard input (yaml)")
    made.add_argument("--prompt", help="a task without a file: what the agent is asked to do")
    for key in _KEYS:
        made.add_argument(f"--{key.replace('_', '-')}", help=f"{key} of a task without a file")
    made.add_argument("--idempotent", action="store_true", help="running it twice does no harm")
    made.add_argument("--wait", action="store_true", help="wait for the end; exit with 1 unless it completed")
    made.add_argument("--dry-run", action="store_true", help="say how the files are read, and submit nothing")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """What comes behind -- is the task's command."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _files(args: argparse.Namespace, command: list[str]) -> list[tuple[str, bytes]]:
    given = {key: value for key in _KEYS if (value := getattr(args, key)) is not None}
    given |= {"prompt": args.prompt} if args.prompt is not None else {}
    given |= {"command": command} if command else {}
    given |= {"idempotent": True} if args.idempotent else {}
    if bool(args.files) == bool(given):
        raise UsageError("give task files, or options that make one task (--prompt TEXT, or -- COMMAND), not both.")
    if given:
        return [("submit.json", json.dumps({"source": "submit"} | given).encode())]
    return [_read(path, args.format) for path in args.files]


def _read(path: str, form: str) -> tuple[str, bytes]:
    if path == "-":
        return f"stdin.{form}", sys.stdin.buffer.read(_MOST)
    try:
        with opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd, open(fd, "rb", closefd=False) as file:
            return os.path.basename(path), file.read(_MOST)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


def _dry_run(submitting: Submitting, files: list[tuple[str, bytes]], *, as_json: bool) -> int:
    parsed = [(name, submitting.check(name, data)) for name, data in files]
    if as_json:
        print_json([{"file": name} | spec_record(one.spec) | {"notes": one.notes} for name, one in parsed])
        return 0
    for name, one in parsed:
        spec = one.spec
        print(f"{name}: would be queued for {spec.user} in project {spec.project}, agent {spec.agent}")
        print("".join(f"  note: {note}\n" for note in one.notes), end="")
    return 0


def _tell(done: list[Submitted], *, as_json: bool) -> None:
    if as_json:
        rows = [{"id": one.id, "file": one.name, "spooled": one.spooled, "notes": one.notes} for one in done]
        print_json(rows[0] if len(rows) == 1 else rows)
        return
    for one in done:
        print(one.id, flush=True)
        spooled = ("the store is away: the file waits in the spool and is taken in when it is back",)
        for note in (*one.notes, *((one.warning,) if one.warning else ()), *(spooled if one.spooled else ())):
            print(f"fairlead: note: {note}", file=sys.stderr)
