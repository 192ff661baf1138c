"""python -m bench [NAME...]: measure, print the table, and with --write put it into docs/performance.md."""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from bench.figures import Figure, table
from bench.plan import Plan, full, quick

#: In this order; each has a module of its name.
NAMES = ("writing", "runs", "starting", "handover", "locking", "throughput", "intake", "picking", "memory", "status")
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> int:
    """Measure what was asked for; 1 if a target was missed."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", dir=args.directory) as place:
        plan = quick(place) if args.quick else full(place)
        figures = [figure for name in args.names or NAMES for figure in _measure(name, plan)]
        text = f"{_machine(place)}\n\n{table(figures)}"
    print(f"\n{text}")
    if args.write:
        _write(text)
    missed = any(figure.target is not None and not figure.target.met for figure in figures)
    return int(missed and not args.quick)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []], help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="only see that it works; the figures mean nothing")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--directory", help="measure on the file system of this directory")
    return parser.parse_args()


def _measure(name: str, plan: Plan) -> list[Figure]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    figures: list[Figure] = []
    for figure in import_module(f"bench.{name}").run(plan):
        print("  " + "  ".join(cell for cell in figure.cells() if cell), file=sys.stderr, flush=True)
        figures.append(figure)
    return figures


def _machine(place: str) -> str:
    """What the figures were measured on."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", place], check=True, capture_output=True, text=True).stdout.strip()
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, {kind}, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _write(text: str) -> None:
    head, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    DOCUMENT.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
