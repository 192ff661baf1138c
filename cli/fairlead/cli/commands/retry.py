"""fairlead retry."""

from fairlead.cli.access import changing
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.changing import change_each
from fairlead.cli.options import add_ids


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "retry",
        "Run failed, cancelled or lost tasks again; the earlier attempts stay on record.",
        ["fairlead retry ID", "fairlead retry ID1 ID2"],
    )
    add_ids(made)
    return made


def main(words: list[str]) -> int:
    """Send failed, cancelled or lost tasks through the queue again."""
    args = make_parser().parse_args(words)
    with changing() as desk:
        return change_each(desk, args.ids, desk.retry, lambda task: f"{task['id']} is queued again", as_json=args.json)
