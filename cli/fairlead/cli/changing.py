"""One change for several tasks: a wrong id stops it before anything happens, a refusal does not stop the others."""

from collections.abc import Callable, Sequence
from typing import Any

from fairlead.base.errors import RefusedError
from fairlead.cli.output import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.access import AnyDesk


def change_each(
    desk: "AnyDesk",
    parts: Sequence[str],
    change: Callable[[str], dict[str, Any]],
    describe: Callable[[dict[str, Any]], str],
    *,
    as_json: bool,
) -> int:
    """Change every task and tell what became of it; raises with all refusals at the end."""
    ids = [desk.find(part)["id"] for part in parts]
    results = [_try(change, one) for one in ids]
    done = [one for one in results if not isinstance(one, RefusedError)]
    rows = [{name: task[name] for name in ("id", "status", "cancel")} for task in done]
    say(rows, "\n".join(map(describe, done)), as_json=as_json)
    if refused := [str(one) for one in results if isinstance(one, RefusedError)]:
        raise RefusedError("\n".join(refused))
    return 0


def _try(change: Callable[[str], dict[str, Any]], task_id: str) -> dict[str, Any] | RefusedError:
    try:
        return change(task_id)
    except RefusedError as error:
        return error
