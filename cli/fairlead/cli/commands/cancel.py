"""fairlead cancel."""

from typing import Any

from fairlead.cli.access import changing
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.changing import change_each
from fairlead.cli.options import add_ids
from fairlead.queue.states import FINAL


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "cancel",
        "Cancel waiting tasks; running ones are asked to stop, then ended after their grace.",
        ["fairlead cancel ID", "fairlead cancel ID1 ID2"],
    )
    add_ids(made)
    return made


def main(words: list[str]) -> int:
    """Cancel waiting tasks, ask running ones to stop."""
    args = make_parser().parse_args(words)
    with changing() as desk:
        return change_each(desk, args.ids, desk.cancel, _describe, as_json=args.json)


def _describe(task: dict[str, Any]) -> str:
    return f"{task['id']} is cancelled" if task["status"] in FINAL else f"{task['id']} was asked to stop"
