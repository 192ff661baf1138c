"""One change for several tasks: a wrong id stops it before anything happens, a refusal does not stop the others."""

from collections.abc import Callable, Sequence

from fairlead.base.errors import RefusedError
from fairlead.cli.output import say
from fairlead.queue.task import Task


def change_each(
    tasks: Sequence[Task], change: Callable[[Task], Task], describe: Callable[[Task], str], *, as_json: bool
) -> int:
    """Change every task and tell what became of it; raises with all refusals at the end."""
    results = [_try(change, task) for task in tasks]
    done = [one for one in results if isinstance(one, Task)]
    rows = [{"id": task.id, "status": task.status, "cancel": task.cancel} for task in done]
    say(rows, "\n".join(map(describe, done)), as_json=as_json)
    if refused := [str(one) for one in results if isinstance(one, RefusedError)]:
        raise RefusedError("\n".join(refused))
    return 0


def _try(change: Callable[[Task], Task], task: Task) -> Task | RefusedError:
    try:
        return change(task)
    except RefusedError as error:
        return error
