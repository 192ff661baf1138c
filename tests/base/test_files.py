"""Files: written whole or not at all, and read only when they are plain."""

import errno
import os
import random
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest
from tests.support.kernel_errors import KNOWN
from tests.support.programs import run, run_in_pid_namespace, started

from fairlead.base.files import (
    UnsafeFileError,
    create_complete,
    is_temporary,
    make_directory,
    names_in,
    opened,
    read_json,
    read_plain,
    remove,
    remove_all,
    sync_directory,
    sync_file,
    sync_file_system,
    write_atomically,
    write_durably,
)

needs_known_machine = pytest.mark.skipif(not KNOWN, reason="the numbers of this machine's system calls are not known")
both_writers = pytest.mark.parametrize("write", [write_atomically, write_durably])
Write = Callable[[str, bytes], None]


def os_calls(work: Callable[[], object]) -> list[str]:
    """The calls that change or sync something, as they are made; a directory's fsync is told apart."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, called: object) -> None:
        name = getattr(called, "__name__", "")
        if event == "c_call" and name in ("write", "fsync", "rename", "link", "mkdir"):
            is_directory = name == "fsync" and stat.S_ISDIR(os.fstat(frame.f_locals["fd"]).st_mode)
            calls.append("fsync directory" if is_directory else name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@both_writers
def test_a_file_is_replaced_as_a_whole(write: Write, tmp_path: Path) -> None:
    """The new content is there, and nothing else."""
    target = tmp_path / "file"
    write(str(target), b"old, and longer than the new one")
    write(str(target), b"new")
    assert target.read_bytes() == b"new"
    assert names_in(str(tmp_path)) == ["file"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["write_atomically", "write_durably"])
def test_a_killed_writer_never_leaves_half_a_file(how: str, tmp_path: Path) -> None:
    """At every moment, and after every kill -9, the target holds one whole content."""
    target, chance = tmp_path / "file", random.Random(how)
    for _ in range(6):
        with started("base", "rewrite", how, target) as writer:
            for _ in range(chance.randint(1, 60)):
                assert_is_whole(target)
            writer.kill()
        assert_is_whole(target)


def assert_is_whole(path: Path) -> None:
    data = path.read_bytes()
    assert data == data[:1] * len(data)
    assert 100_000 <= len(data) <= 100_006


def test_durable_means_synced_before_and_after_the_rename(tmp_path: Path) -> None:
    """The content is synced before the name points at it, and the name before the call returns."""
    calls = os_calls(lambda: write_durably(str(tmp_path / "file"), b"x"))
    assert calls == ["write", "fsync", "rename", "fsync directory"]


def test_atomic_means_no_sync(tmp_path: Path) -> None:
    """A projection that can be made again does not wait for the disk."""
    assert os_calls(lambda: write_atomically(str(tmp_path / "file"), b"x")) == ["write", "rename"]


@both_writers
def test_a_failed_write_leaves_nothing_behind(write: Write, tmp_path: Path) -> None:
    """Where the name cannot be given, the error comes through and no temporary file stays."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write(str(tmp_path / "taken"), b"x")
    assert names_in(str(tmp_path)) == ["taken"]


@needs_known_machine
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_an_error_of_the_disk_comes_through(call: str, tmp_path: Path) -> None:
    """When a sync or the rename fails, the caller hears of it and the old content stays."""
    target = tmp_path / "file"
    target.write_bytes(b"old")
    assert run("base", "write_with_failing", call, target) == "EIO\n"
    assert target.read_bytes() == b"old"
    assert names_in(str(tmp_path)) == ["file"]


def test_a_dead_writer_with_the_same_pid_is_not_in_the_way(tmp_path: Path) -> None:
    """What a killed process left behind does not stop its successor, even if that has its pid."""
    target = tmp_path / "file"
    said = run_in_pid_namespace("base", "die_writing_then_write", target)
    assert said == "100 -25\n100 0\n"  # the first was killed by SIGXFSZ in the middle of its write
    assert target.read_bytes() == b"x" * 500
    assert len(names_in(str(tmp_path))) == 2


@both_writers
@pytest.mark.parametrize("letter", ["a", "é", "字", "🚢"])
def test_names_may_be_as_long_as_the_kernel_allows(write: Write, letter: str, tmp_path: Path) -> None:
    """A name of up to 255 bytes can be written, in any alphabet."""
    name = letter * (255 // len(letter.encode()))
    write(str(tmp_path / name), b"x")
    assert names_in(str(tmp_path)) == [name]


def test_a_new_file_is_complete_or_refused(tmp_path: Path) -> None:
    """Who comes second is told so, and the first one's content stays."""
    path = str(tmp_path / "file")
    assert create_complete(path, b"first") is True
    assert create_complete(path, b"second") is False
    assert (tmp_path / "file").read_bytes() == b"first"
    assert names_in(str(tmp_path)) == ["file"]


def test_a_new_files_content_is_safe_before_its_name(tmp_path: Path) -> None:
    """A power cut cannot keep the name and take the content: it is synced before it is linked."""
    assert os_calls(lambda: create_complete(str(tmp_path / "file"), b"x")) == ["write", "fsync", "link"]


def test_of_sixteen_processes_one_gets_each_name(tmp_path: Path) -> None:
    """Creation is exclusive, and the file holds the winner's whole content."""
    said = run("base", "create", tmp_path, 16, 40)
    winners = [line.split() for line in said.splitlines()]
    assert sorted(int(name) for name, _ in winners) == list(range(40))
    for name, winner in winners:
        assert (tmp_path / name).read_bytes() == f"{winner} ".encode() * 10_000
    assert len(names_in(str(tmp_path))) == 40


def test_directories_are_made_durably(tmp_path: Path) -> None:
    """Each new name is synced in its parent, so that a power cut takes none of them."""
    path = tmp_path / "a" / "b"
    calls = os_calls(lambda: make_directory(str(path), 0o750))
    assert calls == ["mkdir", "fsync directory"] * 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert os_calls(lambda: make_directory(str(path))) == []


def test_a_relative_directory_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a parent is in the working directory."""
    monkeypatch.chdir(tmp_path)
    make_directory("a/b/")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_file_in_a_directorys_place_is_an_error(path: str, tmp_path: Path) -> None:
    """A file where a directory must be is said at once."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directory(str(tmp_path / path))


def test_many_may_make_the_same_directory(tmp_path: Path) -> None:
    """Processes that make the same directories at the same moment do not fail each other."""
    run("base", "make", tmp_path, 8)
    assert len(list(tmp_path.glob("*/a/b"))) == 50


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    """A regular file of exactly the limit is fine."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(str(path), 5) == b"12345"
    assert read_plain(str(path), 100) == b"12345"


def make_link(path: Path) -> None:
    (path.parent / "target").write_text("secret")
    path.symlink_to("target")


def make_hard_link(path: Path) -> None:
    (path.parent / "target").write_text("secret")
    path.hardlink_to(path.parent / "target")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def make_giant(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (make_link, "symbolic link"),
        (lambda path: path.symlink_to("nowhere"), "symbolic link"),
        (make_hard_link, "more than one name"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "not a regular file"),
        (make_socket, "a socket or a device"),
        (make_giant, "1099511627776 bytes; at most 100 are allowed"),
        (lambda path: path.write_bytes(b"x" * 101), "101 bytes; at most 100 are allowed"),
    ],
)
def test_what_is_not_plain_is_refused(make: Callable[[Path], object], what: str, tmp_path: Path) -> None:
    """Links, pipes, directories, sockets and giants are refused at once, with the reason."""
    path = tmp_path / "file"
    make(path)
    with pytest.raises(UnsafeFileError, match=what):
        read_plain(str(path), 100)


def test_a_device_is_refused() -> None:
    """An endless device is no regular file."""
    with pytest.raises(UnsafeFileError, match="not a regular file"):
        read_plain("/dev/zero", 100)


def test_a_file_that_has_more_than_it_said_is_refused() -> None:
    """The limit holds for what is read, not for what the size promised: /proc's files claim to be empty."""
    assert os.stat("/proc/self/status").st_size == 0
    with pytest.raises(UnsafeFileError, match="grew beyond 100 bytes"):
        read_plain("/proc/self/status", 100)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """An ordinary error stays what it is."""
    with pytest.raises(FileNotFoundError):
        read_plain(str(tmp_path / "file"), 100)


def test_reading_waits_for_nobody(tmp_path: Path) -> None:
    """A file that somebody holds a lease on is not waited for."""
    path = tmp_path / "file"
    path.touch()
    with started("base", "hold_lease", path), pytest.raises(BlockingIOError):
        read_plain(str(path), 100)


def test_json_is_read(tmp_path: Path) -> None:
    """A JSON file comes back as its value."""
    write_atomically(str(tmp_path / "file"), b'{"a": [1, null]}')
    assert read_json(str(tmp_path / "file")) == {"a": [1, None]}


def test_removing_says_whether_there_was_something(tmp_path: Path) -> None:
    """Removing what is not there is no error."""
    (tmp_path / "a").touch()
    assert remove(str(tmp_path / "a")) is True
    assert remove(str(tmp_path / "a")) is False
    (tmp_path / "b").touch()
    remove_all(str(tmp_path / name) for name in "abc")
    assert names_in(str(tmp_path)) == []


def test_names_are_sorted(tmp_path: Path) -> None:
    """Names come in their order; a directory that is not there has none."""
    for name in "cab":
        (tmp_path / name).touch()
    assert names_in(str(tmp_path)) == ["a", "b", "c"]
    assert names_in(str(tmp_path / "missing")) == []


def test_a_descriptor_is_closed_and_not_inherited(tmp_path: Path) -> None:
    """The block's end closes it, whatever happens inside; a started program never gets it."""
    with suppress(RuntimeError), opened(str(tmp_path / "file"), os.O_CREAT | os.O_WRONLY) as fd:
        inheritable = os.get_inheritable(fd)
        raise RuntimeError
    assert inheritable is False
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_writing_goes_on_until_all_is_written(tmp_path: Path) -> None:
    """A call that takes only a part is followed by another, so that no end is lost silently."""
    assert run("base", "write_too_much", tmp_path / "file") == "EFBIG\n"
    assert (tmp_path / "file").stat().st_size == 1000


def test_syncing_reaches_file_directory_and_file_system(tmp_path: Path) -> None:
    """Each kind of sync takes its own kind of path."""
    path = tmp_path / "file"
    path.write_text("x")
    assert os_calls(lambda: sync_file(str(path))) == ["fsync"]
    assert os_calls(lambda: sync_directory(str(tmp_path))) == ["fsync directory"]
    assert os_calls(lambda: sync_directory("")) == ["fsync directory"]
    sync_file_system(str(tmp_path))


def test_syncing_follows_no_link_and_takes_no_file_for_a_directory(tmp_path: Path) -> None:
    """What is synced is what was meant."""
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        sync_file(str(tmp_path / "link"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_directory(str(tmp_path / "file"))


@needs_known_machine
@pytest.mark.parametrize("kind", ["file", "directory", "file system"])
def test_an_input_output_error_is_no_matter_for_a_second_try(kind: str, tmp_path: Path) -> None:
    """When the disk fails, syncing what was written before says that it must not be asked again, and where."""
    path = tmp_path if kind == "directory" else tmp_path / "file"
    (tmp_path / "file").touch()
    said = run("base", "sync_failing", kind, str(errno.EIO), path)
    assert said.startswith(f"stop: {path}: Input/output error")


@needs_known_machine
def test_a_full_disk_may_be_asked_again(tmp_path: Path) -> None:
    """No room is an ordinary error: making room helps."""
    path = tmp_path / "file"
    path.touch()
    assert run("base", "sync_failing", "file", str(errno.ENOSPC), path) == "ENOSPC\n"


@pytest.mark.parametrize(
    ("name", "temporary"),
    [
        (".file.0123456789abcdef.tmp", True),
        (".a.b.json.0123456789abcdef.tmp", True),
        ("file.0123456789abcdef.tmp", False),
        (".file.0123456789abcde.tmp", False),
        (".file.0123456789abcdeg.tmp", False),
        (".file.0123456789abcdef.json", False),
        (".0123456789abcdef.tmp", False),
        (".tmp", False),
        ("tmp", False),
    ],
)
def test_names_of_half_written_files_are_known(name: str, temporary: bool) -> None:  # noqa: FBT001
    """Nobody else's names are taken for ours."""
    assert is_temporary(name) is temporary
