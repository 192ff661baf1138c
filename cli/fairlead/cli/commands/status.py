"""fairlead status."""

from typing import Any

from fairlead.base.bell import is_heard
from fairlead.cli.quick import is_direct, open_connection, wants_json
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.services import SERVICES, how_to_start
from fairlead.queue.sqlite.overview import status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.arguments import Parser


def make_parser() -> "Parser":
    """What it takes."""
    from fairlead.cli.arguments import parser  # noqa: PLC0415 - start-up time

    return parser(
        "status", "Slots, what waits, who runs, who holds locks.", ["fairlead status", "fairlead status --json"]
    )


def main(words: list[str]) -> int:
    """Print the state of the whole queue."""
    as_json = wants_json(words, make_parser)
    paths = find_paths()
    data = _here(paths) if is_direct(paths) else _there(paths)
    if as_json:
        from fairlead.cli.output import print_json  # noqa: PLC0415 - start-up time

        print_json(data)
    else:
        print("\n".join([*_stopped(paths, data), *_lines(data)]))
    return 0


def _here(paths: Paths) -> dict[str, Any]:
    db = open_connection(paths)
    data = status(db) | {name: is_heard(paths.bells, name) for name in SERVICES}
    db.close()
    return data


def _there(paths: Paths) -> dict[str, Any]:
    from fairlead.cli.remote import Remote  # noqa: PLC0415 - start-up time

    return Remote(paths).status()


def _stopped(paths: Paths, data: dict[str, Any]) -> list[str]:
    return [f"the {name} does not run; {how_to_start(paths, name)}" for name in SERVICES if not data[name]]


def _lines(data: dict[str, Any]) -> list[str]:
    pending, active = data["pending"], data["active"]
    waits = ", ".join(f"{pending[name]} {name}" for name in ("critical", "high", "medium", "low") if pending[name])
    later = f", {pending['not_due']} not due yet" if pending["not_due"] else ""
    lines = [
        *([f"nothing new is begun: {data['no_room']}"] if data["no_room"] else []),
        *(f"paused: {scope}" for scope in data["paused"]),
        f"slots:    {active['slots_used']} of {active['slots_max']} used",
        f"pending:  {pending['total']}" + (f" ({waits}{later})" if pending["total"] else ""),
        "finished: " + (", ".join(f"{n} {what}" for what, n in sorted(data["finished"].items())) or "none yet"),
    ]
    return lines + [_lock_line(lock) for lock in data["user_locks"]["details"]]


def _lock_line(lock: dict[str, Any]) -> str:
    by = f"runs {lock['task_id']}" if lock["kind"] == "run" else f"is held by a command, pid {lock['acquired_by_pid']},"
    state = "" if lock["state"] == "held" else f" ({lock['state'].upper()})"
    return f"{lock['user']} {by} since {lock['acquired_at'][:19]}Z{state}"
