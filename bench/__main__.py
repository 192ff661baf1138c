"""python -m bench [NAME...]: measure, print the table, and with --write put it into docs/performance.md."""

import argparse
import os
import platform
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from bench.figures import Figure, table
from bench.plan import Plan, full, quick

#: In this order; each has a module of its name.
NAMES = (
    "writing",
    "runs",
    "starting",
    "handover",
    "locking",
    "throughput",
    "intake",
    "picking",
    "memory",
    "status",
    "flood",
)
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> int:
    """Measure what was asked for; 1 if a target was missed."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", dir=args.directory) as place:
        plan = quick(place) if args.quick else full(place)
        machine = _machine(place)
        figures = [figure for name in args.names or NAMES for figure in _measure(name, plan)]
    text = f"{machine}\n\n{table(figures)}"
    print(f"\n{text}")
    if args.write:
        DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8"), text), encoding="utf-8")
    missed = any(figure.target is not None and not figure.target.met for figure in figures)
    return int(missed and not args.quick)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; all without one")
    parser.add_argument("--quick", action="store_true", help="only see that it works; the figures mean nothing")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--directory", help="measure on the file system of this directory")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"there is no benchmark {min(unknown)!r}; there are: {', '.join(NAMES)}")
    return args


def _measure(name: str, plan: Plan) -> list[Figure]:
    print(f"{name} ...", file=sys.stderr, flush=True)
    figures: list[Figure] = []
    for figure in import_module(f"bench.{name}").run(plan):
        print("  " + "  ".join(cell for cell in figure.cells() if cell), file=sys.stderr, flush=True)
        figures.append(figure)
    return figures


def _machine(place: str) -> str:
    """What the figures are measured on, and how busy it was before."""
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, {_file_system(place)}, "
        f"Python {platform.python_version()}, load before {os.getloadavg()[0]:.1f}"
    )


def _file_system(place: str) -> str:
    """The kind of file system that a path is on."""
    device = os.stat(place).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        kinds = {line.split()[2]: line.partition(" - ")[2].split()[0] for line in file}
    return kinds.get(wanted, "unknown file system")


def renewed(document: str, figures: str) -> str:
    """The document with these figures in the place of the old ones."""
    head, _, rest = document.partition(BEGIN)
    return f"{head}{BEGIN}\n{figures}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    sys.exit(main())
