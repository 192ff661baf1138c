"""The benchmarks work: each of the cheap ones runs for real, on a small scale."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import BEGIN, DOCUMENT, END, NAMES, renewed
from bench.figures import HEADER, Figure, at_least, at_most, table

ROOT = Path(__file__).parents[2]
#: Those that start no task-spooler and no second instance.
CHEAP = ("writing", "runs", "starting", "locking", "picking", "status")


def _bench(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_cheap_ones_print_their_table(tmp_path: Path) -> None:
    """A quick run measures everything it is asked for, prints one table and leaves nothing behind."""
    done = _bench("--quick", "--directory", str(tmp_path), *CHEAP)
    assert done.returncode == 0, done.stderr
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]
    assert tuple(lines[0]) == HEADER
    rows = lines[2:]
    assert [row[0] for row in rows] == [
        "a durable file of 500 bytes",
        "a commit of one row",
        "a whole run: directory made to end written",
        "dropped file to agent's start, idle",
        "take a lock",
        "ask for a lock",
        "free a lock",
        "take a lock, 20 others held, 400 pending",
        "ask for a lock, 20 others held, 400 pending",
        "free a lock, 20 others held, 400 pending",
        "entering, until 2,000 are pending",
        "pick and claim, 2,000 pending of 1,000 users",
        "fairlead status, 0 pending",
        "fairlead status, 2,000 pending",
    ]
    assert all(float(row[3].removesuffix(" x")) > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_benchmark_is_refused() -> None:
    """A name that is none is answered with those that are."""
    done = _bench("throughputs")
    assert done.returncode == 2
    assert "there is no benchmark 'throughputs'" in done.stderr


@pytest.mark.parametrize(
    ("ratio", "met"),
    [(19.9, True), (20.0, True), (20.1, False)],
)
def test_a_bound_is_kept_or_not(ratio: float, *, met: bool) -> None:
    """A ratio may be as large as its bound, and not larger; the other way round for what must not be smaller."""
    assert at_most(ratio, 20).met is met
    assert at_least(20, ratio).met is met


def test_a_missed_target_stands_out() -> None:
    """The table says NO where a target was missed, and nothing where there is none."""
    slow = Figure(what="slow", measured="30 ms", against="1 ms: quick", ratio=30, target=at_most(30, 20))
    plain = Figure(what="plain", measured="1 ms", against="1 ms: quick", ratio=1)
    *_, first, second = table([slow, plain]).splitlines()
    assert first.endswith("| NO  |")
    assert second.endswith("|     |")


def test_the_document_tells_of_every_benchmark() -> None:
    """docs/performance.md has a place for the table, and explains what each benchmark is for."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)
    assert [name for name in NAMES if f"| `{name}` |" not in text] == []


def test_new_figures_replace_the_old_ones() -> None:
    """Only what stands between the two marks changes, however often it is written."""
    old = f"before\n{BEGIN}\nold figures\n{END}\nafter\n"
    new = renewed(renewed(old, "newer figures"), "new figures")
    assert new == f"before\n{BEGIN}\nnew figures\n{END}\nafter\n"
