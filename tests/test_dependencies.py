"""Every package that Fairlead asks for is used, and docs/decisions.md says what for."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECISIONS = (ROOT / "docs" / "decisions.md").read_text()
#: The module of a package that is not called as its package is.
MODULES = {"python-daemon": "daemon", "PyYAML": "yaml"}


def _names(wanted: list[str]) -> set[str]:
    return {re.split(r"[>=<\[; ]", one)[0] for one in wanted}


def _imported() -> set[str]:
    """The first part of every module that a room imports."""
    found: set[str] = set()
    for path in ROOT.glob("*/fairlead/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found


def test_every_package_is_used() -> None:
    """What is installed with Fairlead is imported by it."""
    packages = _names(PROJECT["dependencies"])
    assert {name for name in packages if MODULES.get(name, name) not in _imported()} == set()


def test_every_package_has_its_reason() -> None:
    """Each has its row in the table of dependencies."""
    wanted = _names(PROJECT["dependencies"]) | _names(PROJECT["optional-dependencies"]["dev"])
    rows = [line for line in DECISIONS.splitlines() if line.startswith("| ")]
    named = set(re.findall(r"[\w-]+", "\n".join(line.split(" | ")[0] for line in rows)))
    assert {name for name in wanted if not name.startswith("types-")} - named == set()
