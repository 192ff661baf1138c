"""Capped logs: head and tail of an output of any length, and exact counts of what is missing."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.conductor.output import LAST_WORDS, CappedLog, last_words, read_tail


def numbered(size: int) -> bytes:
    """Bytes of which every part differs from every other."""
    return b"".join(b"%07d." % number for number in range(size // 8 + 1))[:size]


def capped(whole: bytes, limit: int) -> bytes:
    """What must be in the file in the end."""
    half = limit // 2
    if len(whole) <= 2 * half:
        return whole
    return b"%s\n[fairlead: %d bytes left out here]\n%s" % (whole[:half], len(whole) - 2 * half, whole[-half:])


@settings(deadline=None)
@given(
    limit=st.integers(2, 300),
    cuts=st.lists(st.integers(1, 200), max_size=40),
)
def test_head_and_tail_are_kept(limit: int, cuts: list[int]) -> None:
    """For any limit, and an output in any pieces: both halves, whole, and the exact number of bytes between them."""
    whole = numbered(sum(cuts))
    with TemporaryDirectory() as folder:
        log = CappedLog(f"{folder}/log", limit)
        at = 0
        for cut in cuts:
            log.write(whole[at : at + cut])
            at += cut
        log.close()
        assert log.total == len(whole)
        assert Path(folder, "log").read_bytes() == capped(whole, limit)
        assert os.listdir(folder) == ["log"]


@settings(deadline=None)
@given(limit=st.integers(16, 200), cuts=st.lists(st.integers(1, 100), max_size=60))
def test_the_disk_holds_little_more_than_the_limit(limit: int, cuts: list[int]) -> None:
    """However long the output, the files together are at most three halves and two pieces long at any time."""
    with TemporaryDirectory() as folder:
        log = CappedLog(f"{folder}/log", limit)
        for cut in cuts:
            log.write(b"x" * cut)
            assert sum(entry.stat().st_size for entry in os.scandir(folder)) <= 1.5 * limit + 200
        log.close()


def test_a_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    """What an agent says is nobody else's business."""
    log = CappedLog(str(tmp_path / "log"), 100)
    log.write(b"x" * 200)
    assert {entry.stat().st_mode & 0o777 for entry in os.scandir(tmp_path)} == {0o600}
    log.close()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """A link in the log's place is refused; one in a segment's place is replaced."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        CappedLog(str(tmp_path / "link"), 100)
    (tmp_path / "log.tail").symlink_to(victim)
    log = CappedLog(str(tmp_path / "log"), 100)
    log.write(b"x" * 120)
    log.close()
    assert victim.read_text() == "precious"
    assert (tmp_path / "log").read_bytes() == capped(b"x" * 120, 100)


def test_the_tail_of_a_file_is_read(tmp_path: Path) -> None:
    """The last bytes, all of a shorter file, and nothing of what is no file or may not be followed."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    assert read_tail(str(path), 3) == b"789"
    assert read_tail(str(path), 10) == read_tail(str(path), 11) == b"0123456789"
    assert read_tail(str(path), 0) == b""
    for name in ("link", "fifo", "missing", "."):
        assert read_tail(str(tmp_path / name), 3) == b""


def test_last_words_are_stderrs(tmp_path: Path) -> None:
    """The end of stderr; that of stdout if stderr is silent; nothing if both are."""
    assert last_words(str(tmp_path)) == ""
    (tmp_path / "stdout.log").write_text("out")
    (tmp_path / "stderr.log").touch()
    assert last_words(str(tmp_path)) == "out"
    (tmp_path / "stderr.log").write_text("x" + "y" * LAST_WORDS)
    assert last_words(str(tmp_path)) == "y" * LAST_WORDS
