"""Figures: what was measured, what against, and whether that is good enough."""

from collections.abc import Iterable

from msgspec import Struct

HEADER = ("what", "measured", "against", "ratio", "target", "met")


class Target(Struct, frozen=True):
    """A bound, in words, and whether it was kept."""

    text: str
    met: bool


class Figure(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    what: str
    #: With its unit, for people.
    measured: str
    #: The baseline of the same run, with its unit and what it is.
    against: str
    ratio: float | None = None
    #: None for orientation only.
    target: Target | None = None

    def cells(self) -> tuple[str, ...]:
        """The line's cells, in the order of HEADER."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} x"
        if self.target is None:
            return (self.what, self.measured, self.against, ratio, "", "")
        return (self.what, self.measured, self.against, ratio, self.target.text, "yes" if self.target.met else "NO")


def at_most(ratio: float, bound: float) -> Target:
    """The ratio must not be larger."""
    return Target(f"at most {bound:g} x", ratio <= bound)


def at_least(ratio: float, bound: float) -> Target:
    """The ratio must not be smaller."""
    return Target(f"at least {bound:g} x", ratio >= bound)


def ms(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def per_second(rate: float) -> str:
    """A rate for people."""
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.1f}/s"


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table, which reads well on a terminal too."""
    rows = [HEADER, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
