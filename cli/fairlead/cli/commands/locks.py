"""fairlead locks."""

from typing import Any

from fairlead.base.text import one_line
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import positive
from fairlead.cli.output import moment, say, table

Data = dict[str, Any]

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
    desk = reading()
    if args.past:
        past = desk.past_locks(args.limit)
        text = table(_PAST, map(_past_row, past)) if past else "no lock has been released yet"
        say(past, text, as_json=args.json)
        return 0
    shown = desk.locks()
    say(shown, _text(shown["locks"], shown["foreign"]), as_json=args.json)
    return 0


def _text(locks: list[Data], foreign: list[Data]) -> str:
    lines = [table(_HELD, map(_row, locks), status=1)] if locks else []
    lines += [
        f"{lock['name']} is quarantined" + (f": {one_line(str(lock['evidence']), 500)}" if lock["evidence"] else "")
        for lock in locks
        if lock["state"] == "quarantined"
    ]
    lines += [f"user:{one['user']} is locked by the foreign file {one['path']}, {one['maker']}" for one in foreign]
    return "\n".join(lines or ["nobody holds a lock"])


def _row(lock: Data) -> tuple[object, ...]:
    holder = f"pid {lock['acquired_by_pid']} on {lock['host']}"
    what = lock["task_id"] if lock["kind"] == "run" else "a command"
    return lock["name"], lock["state"], what, holder, moment(lock["acquired_at"])


def _past_row(one: Data) -> tuple[object, ...]:
    times = moment(one["acquired_at"]), moment(one["released_at"])
    return one["name"], *times, _why(one), _evidence(one["evidence"])


def _why(one: Data) -> str:
    """Why it was released; of a run: how that ended."""
    task_id: str = one["task_id"]
    end, colon, reason = one["why"].partition(": ")
    if not colon or one["kind"] != "run" or not end.startswith(f"{task_id} "):
        return str(one["why"])
    status = end.removeprefix(f"{task_id} ")
    said = _REASONS.get(reason, reason.replace("_", " "))
    return f"task {task_id} {_VERBS.get(status, '')}{status}" + (f": {said}" if said not in ("", status) else "")


def _evidence(evidence: dict[str, Any]) -> str:
    """What proves that nobody needed it any more; numbers are for programs, except a pid."""
    if evidence.get("written_by"):
        return f"its {evidence['written_by']} wrote the end down"
    if "proof" not in evidence:
        return ", ".join(f"{key}: {value}" for key, value in evidence.items())
    proof = str(evidence["proof"])
    pid = f" (pid {evidence['pid']})" if "pid" in evidence else ""
    return f"{_PROOFS.get(proof, proof)}{pid}"
