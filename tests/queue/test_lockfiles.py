"""The visible locks: mirrors of rows, and whatever else somebody may put in their place."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.queue.driver import HOLDER, NOW

from fairlead.base.errors import UsageError
from fairlead.queue.lockfiles import LockFiles, Metadata
from fairlead.queue.store import Lock

#: What another tool writes, field by field.
FOREIGN = {
    "user": "alice",
    "lock_id": "task_123_1768005905",
    "task_id": "task_123",
    "acquired_at": "2024-01-09T15:30:45",
    "acquired_by_pid": 12345,
    "expires_at": "2024-01-09T16:30:45",
}


def a_lock(user: str = "alice", token: int = 7, name: str | None = None) -> Lock:
    return Lock(
        name=name or f"user:{user}",
        lock_id=f"t-1_{token}",
        token=token,
        task_id="t-1",
        kind="run",
        state="held",
        acquired_at=NOW,
        expires_at=NOW + 60_000,
        holder=HOLDER,
    )


def unchanged(path: str | Path) -> tuple[int, int, int]:
    """What stays the same while nobody touches a file; being read does not count."""
    status = os.lstat(path)
    return status.st_ino, status.st_size, status.st_ctime_ns


@pytest.fixture
def files(tmp_path: Path) -> LockFiles:
    return LockFiles(str(tmp_path))


# ---------------------------------------------------------------------- our own


def test_a_lock_is_shown_with_all_that_is_known_of_it(files: LockFiles, tmp_path: Path) -> None:
    """Both files are there and hold the row's fields, times in ISO-8601."""
    assert files.put(a_lock())
    shown = json.loads((tmp_path / "user_alice.json").read_text())
    assert json.loads((tmp_path / "user_alice.lock").read_text()) == shown
    assert shown == {
        "user": "alice",
        "lock_id": "t-1_7",
        "task_id": "t-1",
        "acquired_at": "2027-01-15T08:00:00.000+00:00",
        "acquired_by_pid": 4711,
        "expires_at": "2027-01-15T08:01:00.000+00:00",
        "host": "here",
        "boot_id": "this-boot",
        "pid_start": 1,
        "token": 7,
        "kind": "run",
    }
    assert sorted(os.listdir(tmp_path)) == ["user_alice.json", "user_alice.lock"]


def test_a_name_that_is_taken_is_left_alone(files: LockFiles, tmp_path: Path) -> None:
    """Whoever comes second changes neither file."""
    assert files.put(a_lock(token=1))
    before = [(tmp_path / name).read_bytes() for name in ("user_alice.lock", "user_alice.json")]
    assert not files.put(a_lock(token=2))
    assert [(tmp_path / name).read_bytes() for name in ("user_alice.lock", "user_alice.json")] == before


def test_what_was_shown_can_be_read(files: LockFiles) -> None:
    """The lock's id comes back, from the user's name."""
    files.put(a_lock())
    found = files.read("alice")
    assert found
    assert (found.user, found.kind, found.lock_id) == ("alice", Metadata.GOOD, "t-1_7")
    assert found.path == files.path("alice")
    assert files.read("bob") is None


def test_locks_that_are_no_users_are_not_shown(files: LockFiles, tmp_path: Path) -> None:
    """A lock of a task or a project has no file; showing, renewing and dropping it do nothing."""
    lock = a_lock(name="task:t-1")
    assert files.put(lock)
    files.refresh(lock)
    files.drop(lock.user, lock.lock_id)
    assert os.listdir(tmp_path) == []


def test_a_renewed_lease_is_shown(files: LockFiles, tmp_path: Path) -> None:
    """The metadata is replaced as a whole, the lock file itself stays."""
    files.put(a_lock())
    before = unchanged(tmp_path / "user_alice.lock")
    files.refresh(a_lock(token=8))
    assert json.loads((tmp_path / "user_alice.json").read_text())["token"] == 8
    assert unchanged(tmp_path / "user_alice.lock") == before


def test_a_dropped_lock_leaves_nothing(files: LockFiles, tmp_path: Path) -> None:
    """Both files go; dropping again is harmless."""
    files.put(a_lock())
    files.drop("alice", "t-1_7")
    files.drop("alice", "t-1_7")
    assert os.listdir(tmp_path) == []


def test_only_ones_own_lock_is_dropped(files: LockFiles) -> None:
    """A file that names another lock stays, whoever made it."""
    files.put(a_lock(token=2))
    files.drop("alice", "t-1_1")
    files.drop("alice", "")
    assert files.read("alice")


def test_an_empty_id_drops_nobodys_file(files: LockFiles, tmp_path: Path) -> None:
    """A file without metadata names no lock, so it is nobody's to drop."""
    (tmp_path / "user_alice.lock").touch()
    files.drop("alice", "")
    assert files.read("alice")


# ---------------------------------------------------------------------- what others put there


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere")


def _link_to_good(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text(json.dumps(FOREIGN))
    path.symlink_to(target)


def _hard_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text(json.dumps(FOREIGN))
    path.hardlink_to(target)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\x00\xff{not json"),
    "number": lambda path: path.write_text("12345"),
    "list": lambda path: path.write_text("[]"),
    "half": lambda path: path.write_text('{"lock_id": "t-1'),
    "deep": lambda path: path.write_text("[" * 60_000),
    "large": lambda path: path.write_bytes(b" " * 70_000),
    "long number": lambda path: path.write_text('{"a": ' + "9" * 5000 + "}"),
    "dangling link": _dangling,
    "link": _link_to_good,
    "hard link": _hard_link,
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": _socket,
}
unreadable = pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE.keys())


@unreadable
def test_whatever_is_there_is_a_lock(files: LockFiles, tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A file of any kind, with any content, is seen, is not ours, cannot be put over, and keeps nobody waiting."""
    make(tmp_path / "user_alice.lock")
    found = files.read("alice")
    assert found
    assert found.lock_id != "t-1_7"
    assert files.users() == {"alice"}
    assert not files.put(a_lock())
    files.drop("alice", "t-1_7")
    assert files.read("alice")


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_a_file_made_by_hand_is_a_lock(files: LockFiles, tmp_path: Path, content: bytes) -> None:
    """`touch` is enough."""
    (tmp_path / "user_alice.lock").write_bytes(content)
    found = files.read("alice")
    assert found
    assert (found.kind, found.lock_id, found.maker) == (Metadata.BY_HAND, "", "made by hand")
    assert not files.put(a_lock())


SOMEBODYS = ("garbage", "list", "deep", "large", "dangling link", "link", "directory", "fifo", "socket")


@pytest.mark.parametrize("kind", SOMEBODYS)
def test_what_could_never_be_ours_is_somebodys(files: LockFiles, tmp_path: Path, kind: str) -> None:
    """None of our own files becomes that by a crash: it was put there to keep agents away."""
    UNREADABLE[kind](tmp_path / "user_alice.lock")
    found = files.read("alice")
    assert found
    assert (found.kind, found.lock_id, found.pid) == (Metadata.BY_HAND, "", None)


@pytest.mark.parametrize("content", ["maintenance", "4711 ann", "-1", "²", "9" * 5000, "[1]", '"text"', "null"])
def test_words_are_somebodys(files: LockFiles, tmp_path: Path, content: str) -> None:
    """Whatever a person writes into a lock, it is his, even where the metadata beside it is spoilt."""
    (tmp_path / "user_alice.lock").write_text(content + "\n", "utf-8")
    for beside in (None, "{", ""):
        if beside is not None:
            (tmp_path / "user_alice.json").write_text(beside)
        found = files.read("alice")
        assert found
        assert (found.kind, found.pid) == (Metadata.BY_HAND, None)


def test_a_mere_number_is_a_pid(files: LockFiles, tmp_path: Path) -> None:
    """`echo $$ > user_alice.lock` tells people who it is; without a host it proves nobody's death."""
    (tmp_path / "user_alice.lock").write_text("4711\n")
    found = files.read("alice")
    assert found
    assert (found.kind, found.pid, found.maker) == (Metadata.BY_HAND, 4711, "made by hand, naming pid 4711")
    assert "host" not in found.data


@pytest.mark.parametrize("kind", ["half", "long number"])
def test_metadata_that_broke_off_is_corrupt(files: LockFiles, tmp_path: Path, kind: str) -> None:
    """It begins as an object does and is none: it was one of ours, or a tool's that died while it wrote."""
    UNREADABLE[kind](tmp_path / "user_alice.lock")
    found = files.read("alice")
    assert found
    assert (found.kind, found.maker) == (Metadata.CORRUPT, "with metadata that was spoilt")


@pytest.mark.parametrize("garbage", [b"\x00" * 300, b"\xff\x00", b"\x80abc"])
@pytest.mark.parametrize("beside", [b"", b"{", b"\x00" * 300])
def test_garbage_beside_metadata_is_corrupt(files: LockFiles, tmp_path: Path, garbage: bytes, beside: bytes) -> None:
    """A disk that lost the content leaves both names: the pair was one of ours."""
    (tmp_path / "user_alice.lock").write_bytes(garbage)
    (tmp_path / "user_alice.json").write_bytes(beside)
    found = files.read("alice")
    assert found
    assert found.kind is Metadata.CORRUPT


def test_a_lock_with_a_second_name_is_read(files: LockFiles, tmp_path: Path) -> None:
    """Who is killed while he shows a lock leaves a temporary name to it as well: it is still known as ours."""
    files.put(a_lock())
    (tmp_path / ".user_alice.lock.0123456789abcdef.tmp").hardlink_to(tmp_path / "user_alice.lock")
    found = files.read("alice")
    assert found
    assert (found.kind, found.lock_id) == (Metadata.GOOD, "t-1_7")
    files.drop("alice", "t-1_7")
    assert files.users() == set()


def test_words_over_our_own_lock_stay(files: LockFiles, tmp_path: Path) -> None:
    """Our metadata goes with the lock; what somebody wrote over the file meanwhile is his lock now."""
    files.put(a_lock())
    (tmp_path / "user_alice.lock").write_text("maintenance")
    files.drop("alice", "t-1_7")
    assert os.listdir(tmp_path) == ["user_alice.lock"]


def test_a_lock_that_has_gone_has_no_age(files: LockFiles, tmp_path: Path) -> None:
    """Its maker may remove it while it is looked at."""
    (tmp_path / "user_alice.lock").touch()
    found = files.read("alice")
    assert found
    assert found.age is not None
    (tmp_path / "user_alice.lock").unlink()
    assert found.age is None


def test_another_tools_metadata_is_read(files: LockFiles, tmp_path: Path) -> None:
    """In the lock itself, or beside an empty one, or beside one that holds a mere pid."""
    for content in (json.dumps(FOREIGN), "", "12345\n"):
        (tmp_path / "user_alice.lock").write_text(content)
        (tmp_path / "user_alice.json").write_text(json.dumps(FOREIGN))
        found = files.read("alice")
        assert found
        assert (found.kind, found.lock_id, found.data) == (Metadata.GOOD, "task_123_1768005905", FOREIGN)


def test_spoilt_metadata_beside_an_empty_lock(files: LockFiles, tmp_path: Path) -> None:
    """An empty lock beside unreadable metadata was meant to have some: it is corrupt, not made by hand."""
    (tmp_path / "user_alice.lock").touch()
    (tmp_path / "user_alice.json").write_text("{")
    found = files.read("alice")
    assert found
    assert found.kind is Metadata.CORRUPT


def test_metadata_without_a_lock_is_no_lock(files: LockFiles, tmp_path: Path) -> None:
    """A .json that was left behind locks nobody, and the next lock replaces it."""
    (tmp_path / "user_alice.json").write_text(json.dumps(FOREIGN))
    assert files.read("alice") is None
    assert files.users() == set()
    assert files.put(a_lock())
    found = files.read("alice")
    assert found
    assert found.lock_id == "t-1_7"


@pytest.mark.parametrize("lock_id", [None, 7, ["a"], {"a": 1}, "\ud800", "a\x00b", "a\nb"])
def test_an_id_that_nobody_could_have_given_is_none(files: LockFiles, tmp_path: Path, lock_id: object) -> None:
    """Whatever stands in the place of the id, only a printable text is one: others could not even be looked up."""
    (tmp_path / "user_alice.lock").write_text(json.dumps({"lock_id": lock_id}))
    found = files.read("alice")
    assert found
    assert (found.kind, found.lock_id) == (Metadata.GOOD, "")


def test_a_directory_in_the_place_of_our_own_lock_stays(files: LockFiles, tmp_path: Path) -> None:
    """Our metadata goes; what somebody put in the lock's place is his lock now."""
    files.put(a_lock())
    (tmp_path / "user_alice.lock").unlink()
    (tmp_path / "user_alice.lock").mkdir()
    files.drop("alice", "t-1_7")
    assert os.listdir(tmp_path) == ["user_alice.lock"]


def test_a_directory_in_the_place_of_our_metadata_stays(files: LockFiles, tmp_path: Path) -> None:
    """It is in nobody's way: the lock is shown, renewed and dropped all the same."""
    (tmp_path / "user_alice.json").mkdir()
    assert files.put(a_lock())
    files.refresh(a_lock())
    files.drop("alice", "t-1_7")
    assert os.listdir(tmp_path) == ["user_alice.json"]


# ---------------------------------------------------------------------- names


def test_only_names_of_users_lock_anybody(files: LockFiles, tmp_path: Path) -> None:
    """Files whose names cannot be a user's are nobody's lock, and harm nobody."""
    files.put(a_lock("alice"))
    for name in (
        "user_.lock",
        "user_a b.lock",
        "user_..lock",
        "user_bob.json",
        "user_carol.lock.tmp",
        ".user_dave.lock.1.tmp",
        "eve.lock",
        f"user_{'x' * 65}.lock",
        "user_new\nline.lock",
    ):
        (tmp_path / name).touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/user_\xff.lock", os.O_CREAT))
    assert files.users() == {"alice"}


def test_no_directory_has_no_locks(tmp_path: Path) -> None:
    """Before the first lock there may be no directory."""
    assert LockFiles(str(tmp_path / "none")).users() == set()


@pytest.mark.parametrize("user", ["../alice", "", "a/b", ".", "a b", "ü"])
def test_no_path_is_built_from_a_wrong_name(files: LockFiles, user: str) -> None:
    """A name that could lead elsewhere is refused before anything is opened."""
    for use in (files.read, files.path, files.set_aside, lambda name: files.drop(name, "x")):
        with pytest.raises(UsageError, match="cannot be a user"):
            use(user)


# ---------------------------------------------------------------------- aside


@unreadable
def test_what_is_set_aside_is_kept(files: LockFiles, tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A lock of any kind is moved out of the way, not removed, with the metadata beside it."""
    lock = tmp_path / "user_alice.lock"
    make(lock)
    (tmp_path / "user_alice.json").write_text("{}")
    before = os.lstat(lock).st_ino
    target = files.set_aside("alice")
    assert files.read("alice") is None
    assert os.lstat(target + ".lock").st_ino == before
    assert Path(target + ".json").read_text() == "{}"
    assert files.put(a_lock())


def test_several_can_be_set_aside(files: LockFiles, tmp_path: Path) -> None:
    """Each has a name of its own; without a file nothing is moved."""
    for number in range(3):
        (tmp_path / "user_alice.lock").write_text(str(number))
        files.set_aside("alice")
    files.set_aside("alice")
    kept = sorted((tmp_path / "aside").iterdir())
    assert [path.read_text() for path in kept] == ["0", "1", "2"]
    assert files.users() == set()
