"""fairlead cancel."""

from fairlead.cli.access import Access, who
from fairlead.cli.arguments import parser
from fairlead.cli.output import print_json
from fairlead.queue.states import FINAL


def main(words: list[str]) -> int:
    """Cancel waiting tasks, ask running ones to stop."""
    made = parser(
        "cancel",
        "Cancel waiting tasks; running ones are asked to stop, then ended after their grace.",
        ["fairlead cancel ID", "fairlead cancel ID1 ID2"],
    )
    made.add_argument("ids", metavar="ID", nargs="+", help="the task's id, or enough of it")
    args = made.parse_args(words)
    access = Access()
    operations = access.operations()
    tasks = [operations.cancel(access.task(part).id, by=who()) for part in args.ids]
    if args.json:
        print_json([{"id": task.id, "status": task.status, "cancel": task.cancel} for task in tasks])
        return 0
    for task in tasks:
        print(f"{task.id} is cancelled" if task.status in FINAL else f"{task.id} was asked to stop")
    return 0
