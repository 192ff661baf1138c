"""fairlead retry."""

from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json


def main(words: list[str]) -> int:
    """Send failed, cancelled or lost tasks through the queue again."""
    made = parser(
        "retry",
        "Run failed, cancelled or lost tasks again; the earlier attempts stay on record.",
        ["fairlead retry ID"],
    )
    made.add_argument("ids", metavar="ID", nargs="+", help="the task's id, or enough of it")
    args = made.parse_args(words)
    access = Access()
    operations = access.operations()
    tasks = [operations.retry(access.task(part).id, by=who()) for part in args.ids]
    if args.json:
        print_json([{"id": task.id, "status": task.status} for task in tasks])
    else:
        print("\n".join(f"{task.id} is queued again" for task in tasks))
    return 0
