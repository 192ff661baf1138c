"""fairlead lock hold|release."""

import os
import signal
import subprocess

from fairlead.base.errors import RefusedError, UsageError
from fairlead.base.ids import check_id, check_name
from fairlead.cli.access import open_instance, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import duration, split_command
from fairlead.cli.output import say
from fairlead.conductor.orders import MARKER
from fairlead.queue.instance import Instance
from fairlead.queue.locks import this_holder
from fairlead.queue.states import ACTIVE
from fairlead.queue.store import Lock
from fairlead.watchdog.stale import StaleLocks

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
    instance = open_instance()
    lock = instance.locks.acquire(user, f"hold-{os.getpid()}", args.timeout)
    if lock is None:
        raise RefusedError(
            f"the lock of {user} was not free within {args.timeout:g} s; `fairlead locks` says who has it."
        )
    evidence: dict[str, object] = {"proof": "its holder let go of it", "pid": os.getpid()}
    try:
        code = evidence["exit_code"] = _run(command, lock)
        return code
    finally:
        instance.locks.release(user, lock.lock_id, evidence=evidence)
        instance.close()


def _run(command: list[str], lock: Lock) -> int:
    """The command's processes carry the lock's id: if this one is killed, the lock stays as long as they live."""
    # Ctrl-C reaches the command as well, and the command decides; before it is there, nothing may slip through.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(command, env=os.environ | {MARKER: lock.lock_id}, check=False).returncode
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
    name = _lock_name(args.whose)
    instance = open_instance()
    evidence = _free(instance, name, force=args.force)
    instance.close()
    say({"released": name, "evidence": evidence}, f"the lock of {args.whose} is free", as_json=args.json)
    return 0


def _lock_name(whose: str) -> str:
    """A lock's full name; a plain word is a user's."""
    if whose.startswith("task:"):
        return f"task:{check_id(whose.removeprefix('task:'))}"
    return f"user:{check_name(whose.removeprefix('user:'), 'user')}"


def _free(instance: Instance, name: str, *, force: bool) -> dict[str, object]:
    # What is proven dead is freed here; what is left of this host's commands is alive.
    StaleLocks(instance).look()
    lock = instance.store.lock(name)
    if lock is not None:
        _refuse_living(instance, lock)
        return _free_row(instance, lock, force=force)
    kind, _, user = name.partition(":")
    if kind == "user" and instance.locks.files.read(user) is not None:
        return _free_file(instance, user, force=force)
    return {"proof": "nobody holds it"}


def _refuse_living(instance: Instance, lock: Lock) -> None:
    if lock.kind == "run" and lock.state == "held" and instance.store.get(lock.task_id).status in ACTIVE:
        raise RefusedError(f"task {lock.task_id} runs under it: `fairlead cancel {lock.task_id}` ends it and frees it.")
    if lock.kind == "hold" and lock.state == "held":
        raise RefusedError(
            f"a command that was started under it is alive (pid {lock.holder.pid}, or what it started): "
            "end it, and the lock is free."
        )


def _free_row(instance: Instance, lock: Lock, *, force: bool) -> dict[str, object]:
    if not force:
        raise RefusedError(
            f"nobody could prove that the holder of {lock.name} (pid {lock.holder.pid} on {lock.holder.host}) is gone: "
            "make sure, then say --force."
        )
    evidence: dict[str, object] = {"forced_by": who(), "was": lock.state, "pid": lock.holder.pid}
    instance.locks.free(lock, f"forced by {who()}", evidence)
    return evidence


def _free_file(instance: Instance, user: str, *, force: bool) -> dict[str, object]:
    path = instance.locks.files.path(user)
    if not force:
        raise RefusedError(f"{path} is not Fairlead's: whoever made it has to remove it; --force puts it aside.")
    lock = instance.store.acquire(
        f"user:{user}", task_id="forced", holder=this_holder(), now=instance.clock.wall_ms(), lease=instance.lease
    )
    if lock is None:
        raise RefusedError(f"the lock of {user} has just been taken; look at `fairlead locks`.")
    evidence: dict[str, object] = {"forced_by": who(), "aside": instance.locks.files.set_aside(user)}
    instance.locks.release(user, lock.lock_id, why=f"forced by {who()}", evidence=evidence)
    return evidence
