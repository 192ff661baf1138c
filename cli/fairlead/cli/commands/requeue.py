"""fairlead requeue."""

from fairlead.base.bell import ring
from fairlead.base.errors import RefusedError
from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.cli.waiting import wait_until
from fairlead.queue.states import ACTIVE, RETRYABLE
from fairlead.queue.why import Why

#: How long the watchdog gets to find out what became of a run.
PATIENCE = 10.0


def main(words: list[str]) -> int:
    """Bring a stuck task back into the queue, on evidence."""
    made = parser(
        "requeue",
        "Bring a task back into the queue that seems stuck. Its run is looked at first; a living one is left alone.",
        ["fairlead requeue ID"],
    )
    made.add_argument("id", metavar="ID", help="the task's id, or enough of it")
    args = made.parse_args(words)
    access = Access()
    task = access.task(args.id)
    if task.status in ACTIVE:
        ring(access.paths.bells, "watchdog", "look")
        wait_until(access.paths.bells, "requeue", lambda: access.task(task.id).status not in ACTIVE, PATIENCE)
        task = access.task(task.id)
    if task.status in ACTIVE:
        answer = Why(access.paths, access.store, access.clock).answer(task)
        raise RefusedError(f"{answer.summary}; `fairlead cancel {task.id}` ends it, then `fairlead retry` it.")
    if task.status in RETRYABLE:
        task = access.operations().retry(task.id, by=who())
    if args.json:
        print_json({"id": task.id, "status": task.status})
    else:
        print(f"{task.id} is {task.status}")
    return 0
