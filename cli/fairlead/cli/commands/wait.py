"""fairlead wait."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.base.errors import RefusedError, UnavailableError
from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_ids, add_timeout
from fairlead.cli.output import forget_output, note, print_json
from fairlead.cli.waiting import tell_of_stopped, wait_until
from fairlead.queue.admit import claimed_in
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.states import Status
from fairlead.queue.task import Outcome, Task

#: So many events are looked through for a refusal.
_LATELY = 1000


class TimeIsUpError(UnavailableError):
    """The tasks have not ended in time."""


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "wait",
        "Wait until tasks have ended. Exits with 0 if all completed, with 1 if one did not, with 5 if the file of"
        " one that waited for the store was refused.",
        ["fairlead wait ID", "fairlead wait ID1 ID2 --timeout 1h"],
    )
    add_ids(made)
    add_timeout(made, "give up after this long, with exit code 6; the tasks go on")
    return made


def main(words: list[str]) -> int:
    """Wait until tasks have ended; 0 only if all completed."""
    args = make_parser().parse_args(words)
    access = Access()
    spooled: set[str] = set()
    ids = [task.id if (task := _known(access, part, spooled)) else part for part in args.ids]
    return wait_for(access, ids, spooled, timeout=args.timeout, as_json=args.json)


def wait_for(access: Access, ids: Sequence[str], spooled: set[str], *, timeout: float | None, as_json: bool) -> int:
    """Wait for these tasks and tell how they ended; those whose files lay in the spool may still be on their way."""
    ended: dict[str, Task] = {}

    def all_ended() -> bool:
        for task_id in ids:
            if task_id not in ended and (task := _known(access, task_id, spooled)) and access.is_over(task):
                ended[task_id] = task
                _tell(task, as_json=as_json)
        return len(ended) == len(set(ids))

    def left() -> list[str]:
        return [task_id for task_id in ids if task_id not in ended]

    try:
        is_over = _wait(access, all_ended, timeout)
    except KeyboardInterrupt:
        _tell_of_going_on(left())
        raise
    if not is_over:
        raise TimeIsUpError(f"not ended in time: {', '.join(left())}; `fairlead why {left()[0]}` says why.")
    if as_json:
        print_json([_plain(ended[task_id]) for task_id in ids])
    return 0 if all(task.status is Status.COMPLETED for task in ended.values()) else 1


def _wait(access: Access, all_ended: Callable[[], bool], timeout: float | None) -> bool:
    """Whether all have ended in time."""
    if not all_ended():
        tell_of_stopped(access.paths, "daemon", "watchdog")
    return wait_until(access.paths.bells, "wait", all_ended, timeout)


def _tell_of_going_on(left: Sequence[str]) -> None:
    """Who has had enough of waiting has stopped nothing else."""
    what, them = ("the tasks go on", "them") if len(left) > 1 else ("the task goes on", "it")
    note(f"{what}; `fairlead cancel {' '.join(left)}` stops {them}")


def _known(access: Access, task_id: str, spooled: set[str]) -> Task | None:
    """The task; None while its file waits for the store. Raises if there is none, or its file was refused."""
    # Looked for before the store is asked: it may be taken in between the two.
    waits = any(file.id == task_id for file in claimed_in(access.paths))
    if waits:
        spooled.add(task_id)
    try:
        return access.task(task_id)
    except NoSuchTaskError:
        if waits:
            return None
        if task_id in spooled:
            raise RefusedError(f"{task_id} was refused: {_refusal(access, task_id)}") from None
        raise


def _refusal(access: Access, task_id: str) -> str:
    """What was wrong with a file that was to become this task, if that was told lately."""
    events = access.store.events(after=max(0, access.store.last_event() - _LATELY), limit=_LATELY)
    errors = [one.detail["error"] for one in events if one.event == "rejected" and one.detail.get("id") == task_id]
    return str(errors[-1]) if errors else f"{access.paths.rejected} says why"


def _tell(task: Task, *, as_json: bool) -> None:
    if as_json:
        return
    error = _outcome(task).error
    try:
        print(f"{task.id} {task.status}" + (f": {one_line(error, 500)}" if error else ""), flush=True)
    except BrokenPipeError:
        forget_output()  # nobody reads it, but the exit code still counts
    if task.status is not Status.COMPLETED and task.started_at:
        note(f"`fairlead logs {task.id}` shows its output")


def _plain(task: Task) -> dict[str, Any]:
    outcome = _outcome(task)
    names = ("reason", "exit_code", "error", "result")
    return {"id": task.id, "status": task.status} | {name: getattr(outcome, name) for name in names}


def _outcome(task: Task) -> Outcome:
    """How it ended; a task that was cancelled while it waited has no more to tell than that."""
    return task.outcome or Outcome(status=task.status, reason=task.status)
