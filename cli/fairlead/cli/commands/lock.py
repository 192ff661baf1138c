"""fairlead lock hold|release."""

import os
import subprocess

from fairlead.base.durations import parse_duration
from fairlead.base.errors import RefusedError, UsageError
from fairlead.base.ids import check_name
from fairlead.cli.access import open_instance, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.conductor.launch import MARKER
from fairlead.queue.instance import Instance
from fairlead.queue.locks import this_holder
from fairlead.queue.states import ACTIVE
from fairlead.queue.store import Lock
from fairlead.watchdog.stale import StaleLocks

_EXAMPLES = ["fairlead lock hold alice -- git rebase main", "fairlead lock release alice --force"]


def main(words: list[str]) -> int:
    """Hold a user's lock for a command, or release one."""
    if words[:1] == ["hold"]:
        return _hold(words[1:])
    if words[:1] == ["release"]:
        return _release(words[1:])
    made = parser("lock", "Hold a user's lock for a command, or release one that stayed.", _EXAMPLES, json=False)
    made.add_argument("what", choices=("hold", "release"), help="`fairlead lock hold --help` says more")
    made.parse_args(words)
    return 0


# ---------------------------------------------------------------------- hold


def _hold(words: list[str]) -> int:
    made = parser(
        "lock hold",
        "Run a command under a user's lock: no agent of that user runs meanwhile. Exits as the command does.",
        _EXAMPLES[:1],
        json=False,
    )
    made.add_argument("user", help="whose tasks to keep away")
    made.add_argument(
        "--timeout", type=parse_duration, default=30.0, help="wait so long for the lock (30s); 0: try once"
    )
    made.add_argument("command", metavar="-- COMMAND", nargs="*", help="the command and its arguments")
    if "--" not in words:
        made.parse_args([*words, "--", "-"])
        raise UsageError("say which command to run: fairlead lock hold USER -- COMMAND")
    at = words.index("--")
    args, command = made.parse_args(words[:at]), words[at + 1 :]
    return _run_under_lock(check_name(args.user, "user"), command, args.timeout)


def _run_under_lock(user: str, command: list[str], timeout: float) -> int:
    instance = open_instance()
    lock = instance.locks.acquire(user, f"hold-{os.getpid()}", timeout)
    if lock is None:
        raise RefusedError(f"the lock of {user} was not free within {timeout:g} s; `fairlead locks` says who has it.")
    try:
        return _run(command, lock)
    finally:
        instance.locks.release(user, lock.lock_id)
        instance.close()


def _run(command: list[str], lock: Lock) -> int:
    """The command's processes carry the lock's id: if this one is killed, the lock stays as long as they live."""
    try:
        process = subprocess.Popen(command, env=os.environ | {MARKER: lock.lock_id})
    except OSError as error:
        raise UsageError(f"{command[0] if command else ''!r} cannot be run: {error.strerror}.") from error
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue  # the command has heard it too, and decides
        return code if code >= 0 else 128 - code


# ---------------------------------------------------------------------- release


def _release(words: list[str]) -> int:
    made = parser(
        "lock release",
        "Release a lock whose holder is gone. --force also one that is quarantined or foreign, on your word.",
        _EXAMPLES[1:],
    )
    made.add_argument("user", help="whose lock")
    made.add_argument("--force", action="store_true", help="you know that nothing of its holder is alive any more")
    args = made.parse_args(words)
    user = check_name(args.user, "user")
    instance = open_instance()
    evidence = _free(instance, user, force=args.force)
    instance.close()
    if args.json:
        print_json({"released": f"user:{user}", "evidence": evidence})
    else:
        print(f"the lock of {user} is free")
    return 0


def _free(instance: Instance, user: str, *, force: bool) -> dict[str, object]:
    StaleLocks(instance).look()
    lock = instance.store.lock(f"user:{user}")
    if lock is not None:
        _refuse_living(instance, lock)
        return _free_row(instance, user, lock, force=force)
    if instance.locks.files.read(user) is not None:
        return _free_file(instance, user, force=force)
    return {"proof": "nobody holds it"}


def _refuse_living(instance: Instance, lock: Lock) -> None:
    if lock.kind == "run" and lock.state == "held" and instance.store.get(lock.task_id).status in ACTIVE:
        raise RefusedError(f"task {lock.task_id} runs under it: `fairlead cancel {lock.task_id}` ends it and frees it.")


def _free_row(instance: Instance, user: str, lock: Lock, *, force: bool) -> dict[str, object]:
    if not force:
        raise RefusedError(
            f"nobody could prove that the holder of {lock.name} (pid {lock.holder.pid} on {lock.holder.host}) is gone: "
            "make sure, then say --force."
        )
    evidence: dict[str, object] = {"forced_by": who(), "was": lock.state, "pid": lock.holder.pid}
    instance.locks.release(user, lock.lock_id, why=f"forced by {who()}", evidence=evidence)
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
