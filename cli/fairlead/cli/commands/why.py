"""fairlead why."""

import msgspec

from fairlead.base.text import one_line
from fairlead.cli.access import Access
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.queue.why import Answer, Why


def main(words: list[str]) -> int:
    """Say what keeps a task from running."""
    made = parser("why", "Why a task is not running: every reason, the most decisive first.", ["fairlead why ID"])
    made.add_argument("id", metavar="ID", help="the task's id, or enough of it")
    args = made.parse_args(words)
    access = Access()
    answer = Why(access.paths, access.store, access.clock).answer(access.task(args.id))
    if args.json:
        print_json(msgspec.to_builtins(answer))
    else:
        _print(answer)
    return 0


def _print(answer: Answer) -> None:
    print(f"{answer.task_id} ({answer.status}): {one_line(answer.summary, 500)}")
    for obstacle in answer.obstacles[1:]:
        print(f"  also: {one_line(obstacle.detail, 500)}")
