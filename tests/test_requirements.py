"""docs/requirements.md names only what is there, and a test, not a file, as the proof."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "requirements.md").read_text()
ROWS = {
    row[0]: row
    for row in (
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.splitlines()
        if re.match(r"\| [A-F]\d+ \|", line)
    )
}
#: What is done; the rest is under "To come".
IN_SCOPE = """
    A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A13 B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 D6 E4 E7 E8 F1 F2 F3 F4 F5 F6 F7
"""
#: A proof is a test, or one of these, which are too long to be run with every change.
LONG = ("tests/proof/kills.py", "tests/proof/cuts.py", "tests/proof/services.py", "bench/")


def defined_in(path: str) -> set[str]:
    """The tests that a file defines: functions, methods, and classes that are made by assignment."""
    nodes = list(ast.walk(ast.parse((ROOT / path).read_text())))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assigned = {target for node in nodes if isinstance(node, ast.Assign) for target in node.targets}
    return functions | {one.id for one in assigned if isinstance(one, ast.Name) and one.id.startswith("Test")}


def proofs(proof: str) -> list[tuple[str, list[str]]]:
    """Each file that a row names as proof, with the tests that follow it."""
    parts = re.findall(r"`([\w./-]+)`([^`]*)", proof)
    return [(path, re.findall(r"\b[Tt]est_?\w+", after)) for path, after in parts]


def test_every_requirement_has_code_and_proof() -> None:
    """No row is missing, none is left empty, none is there twice."""
    assert sorted(ROWS) == sorted(IN_SCOPE.split())
    assert len(re.findall(r"^\| [A-F]\d+ \|", PAGE, re.MULTILINE)) == len(ROWS)
    assert [name for name, row in ROWS.items() if len(row) != 4 or not all(row)] == []


@pytest.mark.parametrize("identifier", ROWS)
def test_every_file_is_there(identifier: str) -> None:
    """Code and proof of every requirement are files of this project."""
    named = re.findall(r"`([\w./-]+/[\w./-]+|[\w-]+\.toml)`", "".join(ROWS[identifier][2:]))
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("identifier", ROWS)
def test_every_proof_is_a_test_that_is_there(identifier: str) -> None:
    """Each file of the proof is followed by tests of that very file; long proofs alone stand for themselves."""
    found = proofs(ROWS[identifier][3])
    assert any(names for _, names in found), "nothing that is run with every change"
    for path, names in found:
        assert names or path.startswith(LONG), f"{path}: which test?"
        assert [name for name in names if name not in defined_in(path)] == []
        assert len(set(names)) == len(names)
