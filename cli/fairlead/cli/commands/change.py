"""fairlead change."""

from msgspec import UNSET

from fairlead.base.errors import RefusedError, UsageError
from fairlead.cli.access import Changing, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.documents import NAME, document, said
from fairlead.cli.options import add_id, whole
from fairlead.cli.output import note, say
from fairlead.config.schema import Agent, Config
from fairlead.queue.record import spec_record
from fairlead.queue.states import Status
from fairlead.queue.task import Changes, Task
from fairlead.queue.taskfile import Parsed, parse_task

_KEYS = ("priority", "run_at", "title")
#: A task file needs an agent to be one; which does not matter here.
_SETTINGS = Config(agents={Config().default_agent: Agent(command=("true",))})


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "change",
        "Change the priority, time or title of a task that waits.",
        ["fairlead change ID --priority high", "fairlead change ID --run-at +2h", "fairlead change ID --run-at now"],
    )
    add_id(made)
    made.add_argument("--priority", metavar="WORD", help="critical, high, medium, low, or 0 (first) to 10")
    made.add_argument("--run-at", metavar="TIME", help="not before then: ISO 8601, +2h, or now")
    made.add_argument("--title", metavar="TEXT", help="what lists show")
    made.add_argument("--version", metavar="N", type=whole, help="only if the task still has this version")
    return made


def main(words: list[str]) -> int:
    """Change a waiting task."""
    args = make_parser().parse_args(words)
    given = {key: value for key in _KEYS if (value := getattr(args, key)) is not None}
    if not given:
        raise UsageError("say what to change: --priority, --run-at or --title.")
    with Changing() as access:
        changes = _changes(given, access.clock.wall_ms())
        task = _waiting(access.task(args.id))
        version = task.version if args.version is None else args.version
        changed = access.operations().change(task.id, version, changes, by=who())
    spec = spec_record(changed.spec)
    data = {"id": changed.id, "version": changed.version} | {key: spec[key] for key in _KEYS}
    say(data, f"{changed.id} is changed; it has version {changed.version} now", as_json=args.json)
    return 0


def _waiting(task: Task) -> Task:
    if task.status is not Status.QUEUED:
        raise RefusedError(f"task {task.id} is {task.status}: only a task that waits can be changed.")
    return task


def _changes(given: dict[str, str], now: int) -> Changes:
    """What the options mean; now is no time at all."""
    at_once = given.get("run_at") == "now"
    rest = {key: value for key, value in given.items() if not (at_once and key == "run_at")}
    parsed = said(lambda: _parse(rest, now))
    for one in parsed.notes:
        note(one)
    return Changes(**{key: getattr(parsed.spec, key) if key in given else UNSET for key in _KEYS})


def _parse(given: dict[str, str], now: int) -> Parsed:
    return parse_task(document({"prompt": "-"} | given), NAME, "nobody", _SETTINGS, now)
