"""fairlead wait."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.base.errors import RefusedError, UnavailableError
from fairlead.base.text import one_line
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_ids, add_timeout
from fairlead.cli.output import forget_output, note, print_json
from fairlead.cli.waiting import tell_of_stopped, wait_until
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.states import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


End = dict[str, Any]


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
    desk = reading()
    ids = [desk.end(part)["id"] for part in args.ids]
    return wait_for(desk, ids, timeout=args.timeout, as_json=args.json)


def wait_for(desk: "AnyDesk", ids: Sequence[str], *, timeout: float | None, as_json: bool) -> int:
    """Wait for these tasks and tell how they ended; those whose files lay in the spool may still be on their way."""
    ended: dict[str, End] = {}
    spooled: set[str] = set()

    def all_ended() -> bool:
        for task_id in ids:
            if task_id not in ended and (end := _end(desk, task_id, spooled))["is_over"]:
                ended[task_id] = end
                _tell(end, as_json=as_json)
        return len(ended) == len(set(ids))

    def left() -> list[str]:
        return [task_id for task_id in ids if task_id not in ended]

    try:
        is_over = _wait(desk, all_ended, timeout)
    except KeyboardInterrupt:
        _tell_of_going_on(left())
        raise
    if not is_over:
        raise TimeIsUpError(f"not ended in time: {', '.join(left())}; `fairlead why {left()[0]}` says why.")
    if as_json:
        print_json([_plain(ended[task_id]) for task_id in ids])
    return 0 if all(end["status"] == Status.COMPLETED for end in ended.values()) else 1


def _end(desk: "AnyDesk", task_id: str, spooled: set[str]) -> End:
    """How it ended, if it has; what was in the spool a moment ago and is nowhere now was refused."""
    try:
        end = desk.end(task_id)
    except NoSuchTaskError:
        if task_id not in spooled:
            raise
        raise RefusedError(f"{task_id} was refused: the note beside its file in rejected says why") from None
    if end["status"] == "spooled":
        spooled.add(task_id)
    return end


def _wait(desk: "AnyDesk", all_ended: Callable[[], bool], timeout: float | None) -> bool:
    """Whether all have ended in time."""
    if not all_ended():
        tell_of_stopped(desk, "daemon", "watchdog")
    return wait_until(desk, "wait", all_ended, timeout)


def _tell_of_going_on(left: Sequence[str]) -> None:
    """Who has had enough of waiting has stopped nothing else."""
    what, them = ("the tasks go on", "them") if len(left) > 1 else ("the task goes on", "it")
    note(f"{what}; `fairlead cancel {' '.join(left)}` stops {them}")


def _tell(end: End, *, as_json: bool) -> None:
    if as_json:
        return
    error = end.get("error")
    try:
        print(f"{end['id']} {end['status']}" + (f": {one_line(error, 500)}" if error else ""), flush=True)
    except BrokenPipeError:
        forget_output()  # nobody reads it, but the exit code still counts
    if end["status"] != Status.COMPLETED and end.get("has_started"):
        note(f"`fairlead logs {end['id']}` shows its output")


def _plain(end: End) -> End:
    return {key: value for key, value in end.items() if key not in ("is_over", "has_started")}
