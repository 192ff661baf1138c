"""fairlead capacity."""

from typing import Any

from fairlead.cli.access import reading
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.output import say, table


def make_parser() -> Parser:
    """What it takes."""
    return parser("capacity", "Slots and who uses them.", ["fairlead capacity", "fairlead capacity --json | jq .slots"])


def main(words: list[str]) -> int:
    """Print the slots and who uses them."""
    args = make_parser().parse_args(words)
    data = reading().capacity()
    say(data, _text(data), as_json=args.json)
    return 0


def _text(data: dict[str, Any]) -> str:
    slots = data["slots"]
    parts = [f"{slots['used']} of {slots['max']} slots used, {slots['available']} free"]
    used = ((kind, data[f"by_{kind}"]) for kind in ("user", "project"))
    parts += [table([kind, "running"], sorted(by.items())) for kind, by in used if by]
    return "\n".join(parts)
