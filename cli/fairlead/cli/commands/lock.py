"""fairlead lock hold|release."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.base.errors import RefusedError, UnavailableError, UsageError
from fairlead.base.ids import check_name
from fairlead.cli.access import making
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import duration, split_command
from fairlead.cli.output import note, say
from fairlead.cli.waiting import wait_until
from fairlead.conductor.orders import MARKER
from fairlead.config.paths import find_paths
from fairlead.queue.locks import this_holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


_EXAMPLES = ["fairlead lock hold alice -- git rebase main", "fairlead lock release alice --force"]


def make_parser() -> Parser:
    """What it takes."""
    made = parser("lock", "Hold a user's lock for a command, or release one that stayed.", _EXAMPLES, json=False)
    ways = "hold|release"
    made.add_argument("what", metavar=ways, choices=("hold", "release"), help="`fairlead lock hold --help` says more")
    return made


def make_parsers() -> tuple[Parser, ...]:
    """What its two ways take."""
    return _hold_parser(), _release_parser()


def main(words: list[str]) -> int:
    """Hold a user's lock for a command, or release one."""
    args = make_parser().parse_args(words[:1])
    return {"hold": _hold, "release": _release}[args.what](words[1:])


# ---------------------------------------------------------------------- hold


def _hold_parser() -> Parser:
    made = parser(
        "lock hold",
        "Run a command under a user's lock: no agent of that user runs meanwhile. Exits as the command does; if"
        " it was killed, with 128 and the signal's number. The lock is free when the command has ended, whatever that"
        " left in the background. Should this process be killed, the lock stays as long as what it started lives.",
        _EXAMPLES[:1],
        json=False,
    )
    made.usage = "fairlead lock hold [-h] [--timeout TIME] USER -- COMMAND [ARGUMENT ...]"
    made.add_argument("user", metavar="USER", help="whose tasks to keep away")
    made.add_argument(
        "--timeout", metavar="TIME", type=duration, default=30.0, help="wait so long for the lock (30s); 0: try once"
    )
    return made


def _hold(words: list[str]) -> int:
    own, command = split_command(words)
    args = _hold_parser().parse_args(own)
    if not command:
        raise UsageError("say which command to run: fairlead lock hold USER -- COMMAND")
    user = check_name(args.user, "user")
    with _holding() as desk:
        lock = _take(desk, user, args.timeout)
        code: int | None = None
        try:
            code = _run(command, lock["lock_id"])
        finally:
            _let_go(desk, user, lock["lock_id"], code)
    return code


def _let_go(desk: "AnyDesk", user: str, lock_id: str, code: int | None) -> None:
    """The command has ended, whether or not somebody can be told: its exit code is what counts."""
    try:
        desk.let_go(user, lock_id, this_holder(), code)
    except UnavailableError as error:
        note(f"{error} The lock of {user} is free when the watchdog has seen that this process is gone")


@contextmanager
def _holding() -> "Iterator[AnyDesk]":
    """A desk that leaves this process who it is: the command runs as whoever asked for it, root too."""
    paths = find_paths()
    if paths.is_system and os.geteuid() == 0:
        from fairlead.cli.remote import Remote  # noqa: PLC0415 - one's own instance needs no HTTP

        yield Remote(paths)
        return
    with making() as desk:
        yield desk


def _take(desk: "AnyDesk", user: str, timeout: float) -> dict[str, Any]:
    taken: list[dict[str, Any]] = []

    def take() -> bool:
        lock = desk.try_lock(user, this_holder())
        taken.extend([lock] if lock else [])
        return lock is not None

    if not take() and not (timeout > 0 and wait_until(desk, "lock", take, timeout)):
        raise RefusedError(f"the lock of {user} was not free within {timeout:g} s; `fairlead locks` says who has it.")
    return taken[0]


def _run(command: list[str], lock_id: str) -> int:
    """The command's processes carry the lock's id: if this one is killed, the lock stays as long as they live."""
    # Ctrl-C reaches the command as well, and the command decides; before it is there, nothing may slip through.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(command, env=os.environ | {MARKER: lock_id}, check=False).returncode
    except OSError as error:
        raise UsageError(f"{command[0]!r} cannot be run: {error.strerror}.") from error
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


# ---------------------------------------------------------------------- release


def _release_parser() -> Parser:
    made = parser(
        "lock release",
        "Release a lock whose holder is gone. --force also one that is quarantined or foreign, on your word.",
        _EXAMPLES[1:],
    )
    made.add_argument(
        "whose", metavar="USER", help="whose lock; or task:ID, as `fairlead locks` names that of a single task"
    )
    made.add_argument("--force", action="store_true", help="you know that nothing of its holder is alive any more")
    return made


def _release(words: list[str]) -> int:
    args = _release_parser().parse_args(words)
    with making() as desk:
        done = desk.free_lock(args.whose, force=args.force)
    say(done, f"the lock of {args.whose} is free", as_json=args.json)
    return 0
