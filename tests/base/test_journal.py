"""The journal's protocol, as it arrives at a socket: whatever a value holds, it stays that value."""

import io
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.base.journal import Journal, journal_behind_stderr
from fairlead.base.logs import entry, open_log


class Reader:
    """A journal that reads what it is sent as the real one does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(30)

    def next(self) -> dict[str, list[bytes]]:
        """The fields of the next entry, each with all values that it was given."""
        data, fds, _, _ = socket.recv_fds(self._socket, 1 << 18, 1)
        for fd in fds:
            with open(fd, "rb") as file:
                file.seek(0)
                data += file.read()
        return parsed(data)

    def close(self) -> None:
        self._socket.close()


def parsed(data: bytes) -> dict[str, list[bytes]]:
    fields: dict[str, list[bytes]] = {}
    source = io.BytesIO(data)
    while line := source.readline():
        name, separator, value = line.removesuffix(b"\n").partition(b"=")
        if not separator:
            (length,) = struct.unpack("<Q", source.read(8))
            value = source.read(length)
            assert source.read(1) == b"\n"
        fields.setdefault(name.decode(), []).append(value)
    return fields


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with closing(Reader(str(tmp_path / "socket"))) as reader:
        yield reader


def test_a_field_is_sent_as_it_is(reader: Reader) -> None:
    """On one line, or with its length where it has several."""
    Journal(reader.address).send({"MESSAGE": "one\ntwo", "FAIRLEAD_TASK": "t1"})
    assert reader.next() == {"MESSAGE": [b"one\ntwo"], "FAIRLEAD_TASK": [b"t1"]}


@pytest.mark.parametrize(
    "poison",
    [
        "x\nFAIRLEAD_TASK=forged",
        "x\nMESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00forge\nPRIORITY=0",
        "=\n=\n\n",
        "\x00\x1b]0;title\x07\r",
        "caf\udce9 \ud800",
        "",
    ],
)
def test_no_value_can_pretend_to_be_a_field(poison: str, reader: Reader) -> None:
    """Line ends, lengths, control characters and names that are no UTF-8 stay inside of their value."""
    Journal(reader.address).send({"MESSAGE": poison, "FAIRLEAD_TASK": "t1"})
    expected = poison.encode("utf-8", "backslashreplace")
    assert reader.next() == {"MESSAGE": [expected], "FAIRLEAD_TASK": [b"t1"]}


def test_what_is_too_large_for_a_datagram_arrives_whole(reader: Reader) -> None:
    """As a file in memory that nobody can change any more."""
    Journal(reader.address).send({"MESSAGE": "x" * (10 << 20), "FAIRLEAD_TASK": "t1"})
    found = reader.next()
    assert len(found["MESSAGE"][0]) == 10 << 20
    assert found["FAIRLEAD_TASK"] == [b"t1"]


def test_a_line_tells_what_it_is_about() -> None:
    """What one looks for is a field; the message says all of it, on one line."""
    event = {
        "level": "warning",
        "event": "failed",
        "process": "watchdog",
        "pid": 7,
        "timestamp": "2026-01-01T10:00:00Z",
    }
    found = entry(event | {"task": "t1", "user": "ann", "attempt": 2, "project": "site", "error": "x\nPRIORITY=0"})
    assert found == {
        "MESSAGE": "failed task=t1 user=ann attempt=2 project=site error=x\\nPRIORITY=0",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "fairlead",
        "FAIRLEAD_EVENT": "failed",
        "FAIRLEAD_PROCESS": "watchdog",
        "FAIRLEAD_TASK": "t1",
        "FAIRLEAD_USER": "ann",
        "FAIRLEAD_ATTEMPT": "2",
        "FAIRLEAD_PROJECT": "site",
    }


def test_what_is_not_known_is_no_field() -> None:
    """A task that was never started has no attempt worth a search."""
    found = entry({"level": "info", "event": "queued", "task": "t1", "user": None, "project": ""})
    assert set(found) == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "FAIRLEAD_EVENT", "FAIRLEAD_TASK"}


def test_only_the_journal_behind_standard_error_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent's word about its own standard error says nothing about ours."""
    with (tmp_path / "errors").open("w") as errors:
        status = os.fstat(errors.fileno())
        monkeypatch.setattr(sys, "stderr", errors)
        ours = f"{status.st_dev}:{status.st_ino}"
        found = journal_behind_stderr({"JOURNAL_STREAM": ours})
        assert found is not None
        for said in ({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, {"JOURNAL_STREAM": "nonsense"}, {}):
            assert journal_behind_stderr(said) is None
    monkeypatch.setattr(sys, "stderr", None)
    assert journal_behind_stderr({"JOURNAL_STREAM": ours}) is None


@pytest.mark.parametrize("file", ["auto", "always"])
def test_the_file_is_written_as_well_only_if_wanted(
    file: str, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the journal keeps need not be kept twice."""
    monkeypatch.setattr("fairlead.base.logs.journal_behind_stderr", lambda _: Journal(reader.address))
    path = tmp_path / "log"
    open_log(str(path), "daemon", file=file).info("queued", task="t1")  # type: ignore[arg-type]
    assert reader.next()["FAIRLEAD_TASK"] == [b"t1"]
    assert path.exists() is (file == "always")


def test_while_the_journal_is_away_the_file_has_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost while it is started anew."""
    monkeypatch.setattr("fairlead.base.logs.journal_behind_stderr", lambda _: Journal(str(tmp_path / "nobody")))
    path = tmp_path / "log"
    open_log(str(path), "daemon").info("queued", task="t1")
    assert '"task": "t1"' in path.read_text()
