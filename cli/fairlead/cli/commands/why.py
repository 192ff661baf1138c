"""fairlead why."""

from typing import Any

from fairlead.base.text import one_line
from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_id
from fairlead.cli.output import say


def make_parser() -> Parser:
    """What it takes."""
    made = parser("why", "Why a task is not running: every reason, the most decisive first.", ["fairlead why ID"])
    add_id(made)
    return made


def main(words: list[str]) -> int:
    """Say what keeps a task from running."""
    args = make_parser().parse_args(words)
    answer = reading().why(args.id)
    say(answer, _text(answer), as_json=args.json)
    return 0


def _text(answer: dict[str, Any]) -> str:
    lines = [f"{answer['task_id']} ({answer['status']}): {one_line(answer['summary'], 500)}"]
    lines += [f"  also: {one_line(obstacle['detail'], 500)}" for obstacle in answer["obstacles"][1:]]
    return "\n".join(lines)
