"""Options and arguments that several commands take, and what their values may be."""

import argparse

from fairlead.base.durations import parse_duration
from fairlead.base.errors import UsageError

_ID = "the task's id, or enough of its beginning or its tail"


def add_id(made: argparse.ArgumentParser) -> None:
    """One task."""
    made.add_argument("id", metavar="ID", help=_ID)


def add_ids(made: argparse.ArgumentParser) -> None:
    """One task or several."""
    made.add_argument("ids", metavar="ID", nargs="+", help=_ID)


def add_timeout(made: argparse.ArgumentParser, what: str) -> None:
    """How long to wait at most."""
    made.add_argument("--timeout", metavar="TIME", type=duration, help=what)


def duration(text: str) -> float:
    """Seconds, from a text like 90s, 15m or 1h30m."""
    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error).removesuffix(".")) from error


def whole(text: str) -> int:
    """A number of things, from 0 on."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write 0, 1, 2, …")
    return int(text)


def positive(text: str) -> int:
    """A number of things, at least one."""
    number = whole(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is not enough: write 1 or more")
    return number


def split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """A command's own words, and those behind --, which are a command to run."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]
