"""fairlead status."""

from typing import Any

from fairlead.base.bell import is_heard
from fairlead.cli.arguments import open_connection, parser
from fairlead.config.paths import find_paths
from fairlead.queue.sqlite.overview import status


def main(words: list[str]) -> int:
    """Print the state of the whole queue."""
    made = parser(
        "status", "Slots, what waits, who runs, who holds locks.", ["fairlead status", "fairlead status --json"]
    )
    args = made.parse_args(words)
    paths = find_paths()
    db = open_connection(paths)
    data = status(db) | {name: is_heard(paths.bells, name) for name in ("daemon", "watchdog")}
    db.close()
    if args.json:
        from fairlead.cli.output import print_json  # noqa: PLC0415 - start-up time

        print_json(data)
    else:
        print("\n".join(_lines(data)))
    return 0


def _lines(data: dict[str, Any]) -> list[str]:
    pending, active = data["pending"], data["active"]
    waits = ", ".join(f"{pending[name]} {name}" for name in ("critical", "high", "medium", "low") if pending[name])
    later = f", {pending['not_due']} not due yet" if pending["not_due"] else ""
    lines = [
        *(f"{name} does not run" for name in ("daemon", "watchdog") if not data[name]),
        *(f"paused: {scope}" for scope in data["paused"]),
        f"slots:    {active['slots_used']} of {active['slots_max']} used",
        f"pending:  {pending['total']}" + (f" ({waits}{later})" if pending["total"] else ""),
        "finished: " + (", ".join(f"{n} {what}" for what, n in sorted(data["finished"].items())) or "none yet"),
    ]
    return lines + [_lock_line(lock) for lock in data["user_locks"]["details"]]


def _lock_line(lock: dict[str, Any]) -> str:
    what = {"run": "runs task", "hold": "is held for"}[lock["kind"]]
    state = "" if lock["state"] == "held" else f" ({lock['state'].upper()})"
    return f"{lock['user']} {what} {lock['task_id']} since {lock['acquired_at']}{state}"
