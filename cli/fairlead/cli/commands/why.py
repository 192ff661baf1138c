"""fairlead why."""

import msgspec

from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.options import add_id
from fairlead.cli.output import say
from fairlead.queue.why import Answer, Why


def make_parser() -> Parser:
    """What it takes."""
    made = parser("why", "Why a task is not running: every reason, the most decisive first.", ["fairlead why ID"])
    add_id(made)
    return made


def main(words: list[str]) -> int:
    """Say what keeps a task from running."""
    args = make_parser().parse_args(words)
    access = Access()
    answer = Why(access.paths, access.store, access.clock).answer(access.task(args.id))
    say(msgspec.to_builtins(answer), _text(answer), as_json=args.json)
    return 0


def _text(answer: Answer) -> str:
    lines = [f"{answer.task_id} ({answer.status}): {one_line(answer.summary, 500)}"]
    lines += [f"  also: {one_line(obstacle.detail, 500)}" for obstacle in answer.obstacles[1:]]
    return "\n".join(lines)
