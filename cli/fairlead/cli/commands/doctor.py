"""fairlead doctor."""

from fairlead.base.text import one_line
from fairlead.cli.access import own_paths
from fairlead.cli.arguments import Parser, parser
from fairlead.cli.doctoring import Finding, examine
from fairlead.cli.output import paint, say


def make_parser() -> Parser:
    """What it takes."""
    return parser(
        "doctor",
        "Look for what is wrong with this instance, and say what to do. Exits with 1 if something is.",
        ["fairlead doctor", "fairlead doctor --json | jq '.[] | select(.level != \"ok\")'"],
    )


def main(words: list[str]) -> int:
    """Look for what is wrong; 1 if something is."""
    args = make_parser().parse_args(words)
    findings = list(examine(own_paths()))
    say([finding._asdict() for finding in findings], "\n".join(map(_line, findings)), as_json=args.json)
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def _line(finding: Finding) -> str:
    advice = f" -> {finding.advice}" if finding.advice else ""
    return f"{paint(finding.level, f'{finding.level:<4}')}  {one_line(finding.what + advice, 500)}"
