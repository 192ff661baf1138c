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
#: What is said of an end's reason, where its word is for programs.
_REASONS = {
    "exit": "",
    "signal": "a signal ended it",
    "cannot_launch": "it could not be started",
    "not_started": "it could not be started",
    "never_started": "it never started",
    "timeout": "its time was up",
    "reboot": "the machine was started anew",
    "supervisor_died": "its supervisor died",
}
_VERBS = {"cancelled": "was ", "lost": "was "}
#: What is said of evidence whose words are for programs.
_PROOFS = {
    "another boot": "the machine was started anew since",
    "supervisor lock free": "its supervisor is gone, and so is its run",
    "never launched": "it was never started",
}


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
    return one.name, moment(one.acquired_at), moment(one.released_at), _why(one), _evidence(one.evidence)


def _why(one: PastLock) -> str:
    """Why it was released; of a run: how that ended."""
    end, colon, reason = one.why.partition(": ")
    if not colon or one.kind != "run" or not end.startswith(f"{one.task_id} "):
        return one.why
    status = end.removeprefix(f"{one.task_id} ")
    said = _REASONS.get(reason, reason.replace("_", " "))
    return f"task {one.task_id} {_VERBS.get(status, '')}{status}" + (f": {said}" if said not in ("", status) else "")


def _evidence(evidence: dict[str, Any]) -> str:
    """What proves that nobody needed it any more; numbers are for programs, except a pid."""
    if evidence.get("written_by"):
        return f"its {evidence['written_by']} wrote the end down"
    if "proof" not in evidence:
        return ", ".join(f"{key}: {value}" for key, value in evidence.items())
    proof = str(evidence["proof"])
    pid = f" (pid {evidence['pid']})" if "pid" in evidence else ""
    return f"{_PROOFS.get(proof, proof)}{pid}"


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
