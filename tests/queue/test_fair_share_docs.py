"""The numbers in docs/fair-share.md are the code's own."""

import re
from pathlib import Path

from fairlead.config.schema import FairShare
from fairlead.queue.simulate import Job, Simulation, Start

PAGE = Path(__file__).parents[2] / "docs" / "fair-share.md"
MINUTE = 60.0
USERS = ("alice", "bob", "carol")


def example() -> tuple[Start, ...]:
    jobs = [
        *(Job(user="alice", length=30 * MINUTE) for _ in range(9)),
        *(Job(user="bob", length=20 * MINUTE) for _ in range(9)),
        *(Job(user="carol", length=20 * MINUTE, arrives=65 * MINUTE) for _ in range(9)),
    ]
    share = FairShare(half_life=240 * MINUTE, weights={"alice": 2.0})
    return Simulation(jobs, share=share, slots=1).run(until=220 * MINUTE).starts


def row(start: Start) -> str:
    usage = [f"{start.usage[user] / MINUTE:.1f}" if user in start.usage else "" for user in USERS]
    cells = [f"{start.at / MINUTE:.0f}", start.user, *usage]
    return "| " + " | ".join(cells).rstrip() + " |"


def test_the_example_is_what_the_code_does() -> None:
    """Every row of the worked example comes out of the simulation."""
    documented = re.findall(r"^\| \d.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [row(start) for start in example()]


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    """The page speaks of steps of one hour and a half-life of four."""
    assert (FairShare().half_life, FairShare().ageing) == (240 * MINUTE, 60 * MINUTE)
