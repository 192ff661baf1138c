"""docs/requirements.md names only what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "requirements.md").read_text().splitlines()
    if re.match(r"\| [A-F]\d+ \|", line)
]


def test_every_file_is_there() -> None:
    """Code and proof of every requirement are files of this project."""
    missing = [(row[0], path) for row in ROWS for path in re.findall(r"`([\w./-]+)`", "".join(row[2:]))]
    assert [entry for entry in missing if not (ROOT / entry[1]).exists()] == []


def test_every_named_test_is_there() -> None:
    """A test that a requirement names is defined in the file named before it."""
    for identifier, _, _, proof in ROWS:
        for path, names in re.findall(r"`(tests/[\w./]+)`((?:,? test_\w+)*)", proof):
            text = (ROOT / path).read_text()
            for name in re.findall(r"test_\w+", names):
                assert f"def {name}(" in text, (identifier, name)


def test_every_requirement_has_code_and_proof() -> None:
    """No row is left empty."""
    assert len(ROWS) > 30
    assert [row[0] for row in ROWS if len(row) != 4 or not row[2] or not row[3]] == []
