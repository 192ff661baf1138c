"""fairlead locks."""

from typing import Any

from fairlead.base.clock import iso
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import positive
from fairlead.cli.output import moment, say, table
from fairlead.queue.lockfiles import LockFile
from fairlead.queue.store import Lock, PastLock

_HELD = ("lock", "state", "for", "holder", "since")
_PAST = ("lock", "taken", "released", "why", "evidence")


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "locks",
        "Who holds which lock; with --past, the released ones and on what evidence.",
        ["fairlead locks", "fairlead locks --past --json"],
    )
    made.add_argument("--past", action="store_true", help="the last released locks, newest first")
    made.add_argument("--limit", metavar="N", type=positive, default=50, help="with --past: at most so many (50)")
    return made


def main(words: list[str]) -> int:
    """Print every lock, ours and foreign, and with --past the released ones with their evidence."""
    args = make_parser().parse_args(words)
    access = Access()
    if args.past:
        past = access.store.past_locks(args.limit)
        text = table(_PAST, map(_past_row, past)) if past else "no lock has been released yet"
        say([_past_plain(one) for one in past], text, as_json=args.json)
        return 0
    locks, manager = access.store.locks(), access.locks()
    foreign = [found for user in sorted(manager.foreign()) if (found := manager.files.read(user))]
    shown = {"locks": [_plain(lock) for lock in locks], "foreign": [_foreign_plain(one) for one in foreign]}
    say(shown, _text(locks, foreign), as_json=args.json)
    return 0


def _text(locks: list[Lock], foreign: list[LockFile]) -> str:
    lines = [table(_HELD, map(_row, locks), status=1)] if locks else []
    lines += [
        f"{lock.name} is quarantined: {one_line(str(lock.evidence), 500)}"
        for lock in locks
        if lock.state == "quarantined"
    ]
    lines += [f"user:{one.user} is locked by the foreign file {one.path}, {one.maker}" for one in foreign]
    return "\n".join(lines or ["nobody holds a lock"])


def _row(lock: Lock) -> tuple[object, ...]:
    holder = f"pid {lock.holder.pid} on {lock.holder.host}"
    what = lock.task_id if lock.kind == "run" else "a command"
    return lock.name, lock.state, what, holder, moment(lock.acquired_at)


def _past_row(one: PastLock) -> tuple[object, ...]:
    evidence = ", ".join(f"{key}: {value}" for key, value in one.evidence.items())
    return one.name, moment(one.acquired_at), moment(one.released_at), one.why, evidence


def _past_plain(one: PastLock) -> dict[str, Any]:
    names = ("name", "lock_id", "token", "task_id", "kind", "why", "evidence")
    times = ("acquired_at", "released_at")
    return {name: getattr(one, name) for name in names} | {name: iso(getattr(one, name)) for name in times}


def _foreign_plain(one: LockFile) -> dict[str, Any]:
    return {"user": one.user, "path": one.path, "kind": one.kind, "acquired_by_pid": one.pid}


def _plain(lock: Lock) -> dict[str, Any]:
    return {
        "name": lock.name,
        "user": lock.user,
        "lock_id": lock.lock_id,
        "token": lock.token,
        "task_id": lock.task_id,
        "kind": lock.kind,
        "state": lock.state,
        "acquired_at": iso(lock.acquired_at),
        "expires_at": iso(lock.expires_at),
        "acquired_by_pid": lock.holder.pid,
        "pid_start": lock.holder.start,
        "host": lock.holder.host,
        "boot_id": lock.holder.boot_id,
        "evidence": lock.evidence,
    }
