"""How commands speak: JSON for programs, tables and colours on a terminal, plain lines in a pipe."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.base.text import one_line

_COLOURS = {
    "completed": "32",
    "running": "36",
    "claimed": "36",
    "failed": "31",
    "lost": "35",
    "cancelled": "33",
    "quarantined": "31",
    "ok": "32",
    "warn": "33",
    "fail": "31",
}


def print_json(data: object) -> None:
    """One JSON document."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def print_json_line(data: object) -> None:
    """One JSON line of a stream."""
    print(json.dumps(data, ensure_ascii=False, default=str), flush=True)


def paint(word: str, text: str | None = None) -> str:
    """The text in the word's colour, on a terminal that wants colours."""
    shown = word if text is None else text
    code = _COLOURS.get(word)
    if code is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return shown
    return f"\033[{code}m{shown}\033[0m"


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]], *, status: int | None = None) -> None:
    """Columns under their names; the column `status` is painted. Every cell is made safe for a terminal."""
    cells = [[one_line("" if cell is None else str(cell), 80) for cell in row] for row in rows]
    widths = [max([len(header), *(len(row[i]) for row in cells)]) for i, header in enumerate(headers)]
    print(_line([header.upper() for header in headers], widths, None))
    for row in cells:
        print(_line(row, widths, status))


def _line(row: Sequence[str], widths: Sequence[int], status: int | None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    if status is not None:
        padded[status] = paint(row[status], padded[status])
    return "  ".join(padded).rstrip()


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one per line; empty ones are left out."""
    shown = [(name, value) for name, value in fields if value not in (None, "", (), [], {})]
    width = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        print(f"{name + ':':<{width}} {one_line(str(value), 500)}")
