"""Which dropped files are meant for us, and whether somebody still writes to one."""

import os
import signal
import socket
from contextlib import chdir
from pathlib import Path

import pytest

from fairlead.base.dropping import being_written, is_left_alone


@pytest.mark.parametrize("name", [".hidden", ".", "a~", "a.tmp", "a.swp", "a.part", "rejected", ".a.yaml.swp"])
def test_what_is_being_worked_on_is_left_alone(name: str) -> None:
    """Hidden files, editors' copies, and our own folder are not meant for us."""
    assert is_left_alone(name)


@pytest.mark.parametrize("name", ["a.yaml", "a", "tmp", "part", "rejected.md", "a.tmp.yaml", "ünï", "-rf", "a b\n"])
def test_all_else_is_meant_for_us(name: str) -> None:
    """However strange its name is."""
    assert not is_left_alone(name)


def test_a_file_that_is_open_for_writing_is_being_written(tmp_path: Path) -> None:
    """As long as one of its writers has it open; readers do not count."""
    path = tmp_path / "file"
    with path.open("wb"), path.open("ab"):
        assert being_written(str(path))
    with path.open("rb"):
        assert not being_written(str(path))


def test_what_cannot_be_asked_is_not_being_written(tmp_path: Path) -> None:
    """Links, FIFOs, sockets, folders, and what is not there: whoever reads it will say what is wrong, at once."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener, chdir(tmp_path):
        listener.bind("socket")
    for name in ("link", "folder", "fifo", "socket", "missing"):
        assert not being_written(str(tmp_path / name)), name


def test_asking_leaves_no_trace(tmp_path: Path) -> None:
    """Whoever writes afterwards is not kept waiting, and nobody is told."""
    path = tmp_path / "file"
    path.touch()
    told: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _: told.append(number))
    try:
        assert not being_written(str(path))
        path.write_text("more")
    finally:
        signal.signal(signal.SIGIO, before)
    assert told == []
