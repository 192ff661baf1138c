"""fairlead api."""

from fairlead.cli.arguments import Parser
from fairlead.cli.services import run_service, service_parser
from fairlead.web.process import ApiProcess


def make_parser() -> Parser:
    """What it takes."""
    return service_parser(
        "api",
        "Answer at the socket: HTTP and JSON, for those who may not open the store themselves, and for programs. The"
        " socket comes from systemd, or is made.",
    )


def main(words: list[str]) -> int:
    """Answer until asked to stop."""
    return run_service("api", make_parser().parse_args(words), ApiProcess)
