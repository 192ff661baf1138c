"""fairlead show."""

from typing import Any

from fairlead.base.text import visible
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_fields, print_json, print_table
from fairlead.conductor.rundir import find_dir
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.record import record_of
from fairlead.queue.task import Task

_FIELDS = (
    "id",
    "title",
    "status",
    "reason",
    "error",
    "user",
    "project",
    "agent",
    "action",
    "priority",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "held",
    "exit_code",
    "signal",
    "artifacts",
    "result",
    "cost",
    "source",
)


def main(words: list[str]) -> int:
    """Print everything about one task."""
    made = parser(
        "show",
        "Everything about one task, live or archived.",
        ["fairlead show ID", "fairlead show ID --json | jq .events"],
    )
    made.add_argument("id", metavar="ID", help="the task's id, or enough of its beginning or its tail")
    args = made.parse_args(words)
    access = Access()
    task = access.task(args.id)
    record = _record(access, task) | {"run_dir": _run_dir(access, task)}
    if args.json:
        print_json(record)
    else:
        _print(record)
    return 0


def _record(access: Access, task: Task) -> dict[str, Any]:
    try:
        access.store.get(task.id)
    except NoSuchTaskError:
        return access.archive.read(task.id) or {}
    return record_of(task, access.store.attempts(task.id), access.store.events(task_id=task.id))


def _run_dir(access: Access, task: Task) -> str | None:
    return find_dir(access.paths.conductor, task.spec.project, task.id, task.attempt)


def _print(record: dict[str, Any]) -> None:
    print_fields([(name, record[name]) for name in _FIELDS] + [("run_dir", record["run_dir"])])
    if record["prompt"]:
        print(f"\nprompt:\n{visible(record['prompt'])}")
    if record["log_tail"]:
        print(f"\nlast words:\n{visible(record['log_tail'])}")
    if record["attempts"]:
        print("\nattempts:")
        names = ("number", "status", "reason", "claimed_at", "started_at", "finished_at", "exit_code", "error")
        print_table(names, ([attempt.get(name) for name in names] for attempt in record["attempts"]), status=1)
    print("\nevents:")
    for event in record["events"]:
        rest = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("timestamp", "event", "status"))
        print(f"  {event['timestamp']}  {event['event']:<16} {visible(rest)}".rstrip())
