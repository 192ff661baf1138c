"""fairlead requeue."""

from fairlead.base.bell import ring
from fairlead.base.errors import RefusedError
from fairlead.cli.access import Access, Changing, who
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_id
from fairlead.cli.output import say
from fairlead.cli.usage import living_supervisor
from fairlead.cli.waiting import tell_of_stopped, wait_until
from fairlead.queue.states import ACTIVE, Status
from fairlead.queue.task import Task
from fairlead.queue.why import Why

#: How long the watchdog gets to find out what became of a run.
PATIENCE = 10.0


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "requeue",
        "Bring a task back into the queue that seems stuck. Its run is looked at first; a living one is left alone.",
        ["fairlead requeue ID"],
    )
    add_id(made)
    return made


def main(words: list[str]) -> int:
    """Bring a stuck task back into the queue, on evidence."""
    args = make_parser().parse_args(words)
    with Changing() as access:
        task = access.task(args.id)
        if task.status in ACTIVE:
            task = _looked_at(access, task)
        text = f"{task.id} is queued"
        if task.status is not Status.QUEUED:
            task = access.operations().retry(task.id, by=who())
            text += " again"
    say({"id": task.id, "status": task.status}, text, as_json=args.json)
    return 0


def _looked_at(access: Access, task: Task) -> Task:
    """The task after the watchdog has found out what became of its run; refuses if it runs."""
    if living_supervisor(access.paths, task) is None:
        tell_of_stopped(access.paths, "watchdog")
        ring(access.paths.bells, "watchdog", "look")
        wait_until(access.paths.bells, "requeue", lambda: access.task(task.id).status not in ACTIVE, PATIENCE)
    now = access.task(task.id)
    if now.status in ACTIVE:
        answer = Why(access.paths, access.store, access.clock).answer(now)
        raise RefusedError(
            f"task {task.id} is left alone: {answer.summary}; `fairlead cancel {task.id}` ends it, then retry it."
        )
    return now
