"""meta.json: what is written is read again, and what is none is said to be none."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conductor.runs import Place, put

from fairlead.base.identity import ProcessId
from fairlead.conductor.meta import (
    CorruptMetaError,
    Heartbeat,
    MissingMetaError,
    Supervisor,
    read_meta,
    write_meta,
)
from fairlead.queue.states import Status


@pytest.mark.parametrize("synced", [True, False])
def test_what_is_written_is_read_again(place: Place, *, synced: bool) -> None:
    """Every field comes back as it was."""
    meta = place.meta()
    meta.supervisor = Supervisor(12, 34)
    meta.processes = [ProcessId(1, 2), ProcessId(3, 4)]
    meta.heartbeat = Heartbeat(7, "now")
    meta.result = {"a": [1, 2.5, None, "ü"]}
    write_meta(str(place.path), meta, synced=synced)
    again = read_meta(str(place.path))
    assert again == meta
    assert isinstance(again.processes[0], ProcessId)


def test_nothing_else_is_left_beside_it(place: Place, tmp_path: Path) -> None:
    """Writing replaces the file as a whole, and leaves no other."""
    folder = tmp_path / "run"
    folder.mkdir()
    for synced in (True, False):
        write_meta(str(folder), place.meta(), synced=synced)
    assert os.listdir(folder) == ["meta.json"]


@pytest.mark.parametrize("status", list(Status))
def test_a_run_has_ended_in_a_final_state(place: Place, status: Status) -> None:
    """Claimed, running and void runs have not ended; the others say how."""
    meta = place.meta()
    meta.status = status
    assert meta.ended == (status not in {Status.QUEUED, Status.CLAIMED, Status.RUNNING})
    assert meta.final_status is status
    meta.status = "void"
    assert not meta.ended


def test_a_missing_one_is_a_kind_of_corrupt_one(tmp_path: Path) -> None:
    """No file, no directory: both are told apart from a file that says nothing."""
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MissingMetaError, match="is not there"):
            read_meta(str(path))
    (tmp_path / "meta.json").touch()
    with pytest.raises(CorruptMetaError) as caught:
        read_meta(str(tmp_path))
    assert not isinstance(caught.value, MissingMetaError)


@settings(deadline=None)
@given(content=st.binary())
def test_no_content_is_a_surprise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are read as meta data or refused by name."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "meta.json").write_bytes(content)
    with pytest.raises(CorruptMetaError):
        read_meta(str(folder))


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "socket"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing but a plain file is opened, and nobody is waited for."""
    put(kind, str(tmp_path / "meta.json"))
    with pytest.raises(CorruptMetaError):
        read_meta(str(tmp_path))
