"""How commands speak: JSON for programs, tables and colours on a terminal, plain lines in a pipe."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.base.clock import iso
from fairlead.base.text import escaped, one_line, visible
from fairlead.cli.arguments import is_terminal

_COLOURS = {
    "completed": "32",
    "running": "36",
    "claimed": "36",
    "started": "36",
    "failed": "31",
    "lost": "35",
    "cancelled": "33",
    "quarantined": "31",
    "ok": "32",
    "warn": "33",
    "fail": "31",
}
#: What a column's last word may take, however narrow the terminal is.
_NARROWEST = 16
#: The longest value that is printed; whoever needs more asks for JSON.
_LONGEST = 500


def say(data: object, text: str, *, as_json: bool) -> None:
    """The answer of a command: data for programs, or the text for people."""
    if as_json:
        print_json(data)
    elif text:
        print(text)


def print_json(data: object) -> None:
    """One JSON document."""
    print(_as_json(data, indent=2))


def print_json_line(data: object) -> None:
    """One JSON line of a stream."""
    print(_as_json(data), flush=True)


def _as_json(data: object, indent: int | None = None) -> str:
    """JSON for programs that a terminal can show, too: what it would obey is written as JSON's own escapes."""
    return escaped(json.dumps(data, indent=indent, ensure_ascii=False, default=str))


def note(text: str) -> None:
    """Something that a person should know; whoever reads the answer is not disturbed."""
    print(f"fairlead: note: {visible(text)}", file=sys.stderr)


def forget_output() -> None:
    """What could not be written must not be tried again, and complained about, when Python exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, ValueError):
        return  # there is no such output, or it is no file


def paint(word: str, text: str | None = None) -> str:
    """The text in the word's colour, on a terminal that wants colours."""
    shown = word if text is None else text
    code = _COLOURS.get(word)
    plain = not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return shown if code is None or plain else f"\033[{code}m{shown}\033[0m"


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, status: int | None = None) -> str:
    """Columns under their names; the column `status` is painted, the last one is cut to fit a terminal."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)]
    room = _room(widths[:-1])
    lines = [_line([header.upper() for header in headers], widths, None)]
    lines += [_line([*row[:-1], one_line(row[-1], room)], widths, status) for row in cells]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return one_line("" if value is None else str(value), _LONGEST)


def _room(widths: Sequence[int]) -> int:
    """What is left of a terminal's line for the last column."""
    if not is_terminal():
        return _LONGEST
    return max(_NARROWEST, shutil.get_terminal_size().columns - sum(width + 2 for width in widths))


def _line(row: Sequence[str], widths: Sequence[int], status: int | None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    if status is not None:
        padded[status] = paint(row[status], padded[status])
    return "  ".join(padded).rstrip()


def fields(named: Iterable[tuple[str, Any]]) -> str:
    """Names and values, one per line; empty ones are left out."""
    shown = [(name, value) for name, value in named if value not in (None, "", (), [], {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    return "\n".join(f"{name + ':':<{width}}  {_cell(value)}" for name, value in shown)


def moment(when: int | str | None) -> str:
    """A time for people, to the second: wall milliseconds, or what JSON says."""
    text = iso(when) if isinstance(when, int) else when
    return f"{text[:19]}Z" if text else ""


def counted(number: int, what: str) -> str:
    """A number of things: 1 file, 2 files."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
