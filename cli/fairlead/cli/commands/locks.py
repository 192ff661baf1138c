"""fairlead locks."""

from typing import Any

from fairlead.base.clock import iso
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json, print_table
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.store import Lock

_NAMES = ("name", "state", "kind", "task", "holder", "since", "lease until")


def main(words: list[str]) -> int:
    """Print every lock, ours and foreign, and with --past the released ones with their evidence."""
    made = parser(
        "locks",
        "Who holds which lock; with --past, the released ones and on what evidence.",
        ["fairlead locks", "fairlead locks --past --json"],
    )
    made.add_argument("--past", action="store_true", help="the last released locks, newest first")
    made.add_argument("--limit", type=int, default=50, help="with --past: at most so many (50)")
    args = made.parse_args(words)
    access = Access()
    if args.past:
        return _print_past(access, args.limit, as_json=args.json)
    locks = access.store.locks()
    foreign = _foreign(access)
    if args.json:
        print_json({"locks": [_plain(lock) for lock in locks], "foreign": foreign})
        return 0
    print_table(_NAMES, [_row(lock) for lock in locks], status=1)
    for lock in locks:
        if lock.state == "quarantined":
            print(f"{lock.name} is quarantined: {one_line(str(lock.evidence), 500)}")
    for one in foreign:
        print(f"user:{one['user']} is locked by the foreign file {one['path']}")
    return 0


def _foreign(access: Access) -> list[dict[str, Any]]:
    manager = LockManager(access.store, LockFiles(access.paths.locks), access.clock, access.paths.bells, lease=0.0)
    return [{"user": user, "path": manager.files.path(user)} for user in sorted(manager.foreign())]


def _print_past(access: Access, limit: int, *, as_json: bool) -> int:
    past = access.store.past_locks(limit)
    if as_json:
        names = ("name", "lock_id", "token", "task_id", "kind", "why", "evidence")
        times = ("acquired_at", "released_at")
        print_json([{n: getattr(one, n) for n in names} | {t: iso(getattr(one, t)) for t in times} for one in past])
        return 0
    rows = [(one.name, iso(one.released_at), one.lock_id, one.why, one.evidence) for one in past]
    print_table(("name", "released", "lock", "why", "evidence"), rows)
    return 0


def _row(lock: Lock) -> tuple[object, ...]:
    holder = f"pid {lock.holder.pid} on {lock.holder.host}"
    return lock.name, lock.state, lock.kind, lock.task_id, holder, iso(lock.acquired_at), iso(lock.expires_at)


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
