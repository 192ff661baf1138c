"""A clerk's errands, one by one, in a spool of the tests' own user."""

import os
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from threading import Thread

import pytest

from fairlead.base import frames
from fairlead.base.ids import created_at, is_id, new_id
from fairlead.conductor import errands
from fairlead.conductor.errands import (
    Clear,
    Delivery,
    Dropped,
    Fine,
    Left,
    Note,
    Prepare,
    Prune,
    Ready,
    Refused,
    Settle,
)
from fairlead.porter.clerk import Clerk

RUN = "20261118-120000000-abcdefghjk.1"


@pytest.fixture
def clerk(tmp_path: Path) -> Clerk:
    """A clerk for a new spool."""
    return Clerk(str(tmp_path))


def take(clerk: Clerk, most: int = 100, most_bytes: int = 1 << 20, file_bytes: int = 1 << 16) -> Delivery:
    """What he hands over."""
    reply = clerk.do(errands.encode(errands.Take(most, most_bytes, file_bytes, 0.0)))
    assert isinstance(reply, Delivery), reply
    return reply


def do(clerk: Clerk, errand: errands.Errand) -> errands.Reply:
    """What he brings back."""
    return clerk.do(errands.encode(errand))


def drop(place: Path, name: str, data: bytes = b"data", age: float = 10.0) -> Path:
    """A file that has lain there for a while."""
    path = place / name
    path.write_bytes(data)
    when = time.time() - age
    os.utime(path, (when, when))
    return path


def only(delivery: Delivery) -> Dropped:
    """The one file that was handed over."""
    [file] = delivery.files
    return file


# --- Handing over ---


def test_a_dropped_file_is_handed_over_under_the_id_of_its_task(clerk: Clerk, tmp_path: Path) -> None:
    """It waits in the spool itself, under that id and its own name, until it is settled."""
    drop(tmp_path, "a.yaml", b"prompt: x")
    file = only(take(clerk))
    assert (file.name, file.data, file.error) == ("a.yaml", b"prompt: x", "")
    assert is_id(file.id)
    assert abs(created_at(file.id, 0) - time.time() * 1000) < 10_000
    assert not (tmp_path / "a.yaml").exists()
    assert (tmp_path / ".intake" / f"{file.id}@a.yaml").read_bytes() == b"prompt: x"


def test_files_come_oldest_first_in_the_portions_that_are_asked_for(clerk: Clerk, tmp_path: Path) -> None:
    """So many, and no more once they are so large together; whether there are more is said."""
    for number in range(5):
        drop(tmp_path, f"{9 - number}", b"x" * 10, age=100 - number)
    first, second, third = take(clerk, most=2), take(clerk, most_bytes=15), take(clerk)
    assert [[file.name for file in one.files] for one in (first, second, third)] == [["9", "8"], ["7", "6"], ["5"]]
    assert [one.more for one in (first, second, third)] == [True, True, False]
    assert take(clerk).files == []


def test_what_was_never_settled_is_handed_over_again_under_the_same_id(clerk: Clerk, tmp_path: Path) -> None:
    """By the next clerk; this one does not say it twice."""
    drop(tmp_path, "old")
    file = only(take(clerk))
    drop(tmp_path, "older", age=1000)
    assert only(take(clerk)).name == "older"
    again = take(Clerk(str(tmp_path))).files
    assert {one.name for one in again} == {"old", "older"}
    assert file.id in {one.id for one in again}


def test_how_much_lies_there_is_said(clerk: Clerk, tmp_path: Path) -> None:
    """All files that wait, and their sizes."""
    for name in ("a", "b", ".hidden", "c~"):
        drop(tmp_path, name, b"12345")
    delivery = take(clerk, most=1)
    assert (delivery.count, delivery.size) == (2, 10)


def test_what_is_being_written_waits(clerk: Clerk, tmp_path: Path) -> None:
    """As long as somebody has it open, or it is new and nothing is in it."""
    with drop(tmp_path, "open").open("ab"):
        delivery = take(clerk)
    assert (delivery.files, delivery.settling) == ([], True)
    assert only(take(clerk)).name == "open"
    drop(tmp_path, "new", b"", age=0)
    waits = clerk.do(errands.encode(errands.Take(9, 9, 9, 3600.0)))
    assert isinstance(waits, Delivery)
    assert (waits.files, waits.settling) == ([], True)


def test_what_goes_while_it_is_taken_is_passed_over(clerk: Clerk, tmp_path: Path) -> None:
    """Its user took it back: nobody complains."""
    for number in range(3):
        drop(tmp_path, str(number), age=10 - number)
    assert only(take(clerk, most=1)).name == "0"
    (tmp_path / "1").unlink()
    assert only(take(clerk)).name == "2"


def test_a_name_may_be_any_that_the_kernel_allows(clerk: Clerk, tmp_path: Path) -> None:
    """The longest, no text, with lines in it, an option: each is handed over, and told in text."""
    names = [b"n" * 250 + b".yaml", b"\xff\xfe.yaml", b"a\nb\x1b[2J", b"-rf", "ü€😀".encode() * 20, b"@", b"a@b", b"\\"]
    for name in names:
        drop(tmp_path, os.fsdecode(name))
    delivery = take(clerk)
    assert len({file.id for file in delivery.files}) == len(names)
    assert {file.name for file in delivery.files} >= {"-rf", "\\xff\\xfe.yaml", "a\nb\x1b[2J", "@", "a@b"}
    assert do(clerk, Settle([], {file.id: "no" for file in delivery.files})) == Fine()
    left = {os.fsencode(path.name) for path in (tmp_path / "rejected").iterdir()}
    assert len(left) == 2 * len(names)
    assert {b"\xff\xfe.yaml", b"-rf", b"-rf.error", b"a\nb\x1b[2J"} <= left


# --- What is no file ---


def bind(path: Path) -> None:
    """A socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as listener, chdir(path.parent):  # the whole path may be too long
        listener.bind(path.name)


#: Things in a spool that nobody can take in.
THINGS: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to("/etc/shadow"),
    "dangling link": lambda path: path.symlink_to("/nowhere"),
    "loop": lambda path: path.symlink_to(path),
    "hard link": lambda path: os.link(drop(path.parent, ".other"), path),
    "fifo": os.mkfifo,
    "folder": lambda path: (path / "a" / "b").mkdir(parents=True),
    "socket": bind,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),
    "another's": lambda path: os.chown(drop(path.parent, path.name), 65534, 65534),
    "sparse giant": lambda path: os.truncate(drop(path.parent, path.name), 1 << 40),
}


def put(kind: str, path: Path) -> None:
    """One of these things."""
    if kind in ("device", "another's") and os.geteuid() != 0:
        pytest.skip("making devices, and giving files away, takes root")
    THINGS[kind](path)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("link", "symbolic link"),
        ("dangling link", "symbolic link"),
        ("loop", "symbolic link"),
        ("hard link", "more than one name"),
        ("fifo", "not a regular file"),
        ("folder", "not a regular file"),
        ("socket", "a socket or a device"),
        ("device", "not a regular file"),
        ("another's", "belongs to somebody else"),
        ("sparse giant", f"{1 << 40} bytes; at most {1 << 16}"),
    ],
)
def test_what_cannot_be_taken_in_is_refused_and_put_aside(clerk: Clerk, tmp_path: Path, kind: str, why: str) -> None:
    """At once, with a reason, without reading any of it; it is the thing itself that is moved, not what it leads to."""
    put(kind, tmp_path / "thing")
    before = (tmp_path / "thing").lstat().st_ino
    file = only(take(clerk))
    assert why in file.error
    assert file.data == b""
    assert do(clerk, Settle([], {file.id: f"{file.name}: {file.error}"})) == Fine()
    assert (tmp_path / "rejected" / "thing").lstat().st_ino == before
    assert why in (tmp_path / "rejected" / "thing.error").read_text()
    assert take(Clerk(str(tmp_path))).files == []


def test_what_cannot_be_read_is_said(clerk: Clerk, tmp_path: Path) -> None:
    """A file whose rights keep its own user out."""
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    drop(tmp_path, "closed").chmod(0)
    assert only(take(clerk)).error == "it cannot be read: Permission denied"


def test_strange_things_among_what_waits_are_taken_as_if_they_were_dropped(clerk: Clerk, tmp_path: Path) -> None:
    """A user may lay anything there himself: it gets an id, or is refused."""
    waiting = tmp_path / ".intake"
    waiting.mkdir()
    for name in ("mine", "BAD ID@mine", "@", f"{'a' * 65}@long", "x@y"):
        drop(waiting, name)
    os.mkfifo(waiting / "fifo")
    (waiting / "folder").mkdir()
    files = take(clerk).files
    assert len(files) == 7
    assert all(re.fullmatch(r"[a-z0-9-]{1,64}", file.id) for file in files)
    assert {file.name for file in files if file.error} == {"fifo", "folder"}


def test_an_id_that_a_user_made_up_is_handed_over_as_it_is(clerk: Clerk, tmp_path: Path) -> None:
    """Whoever asked decides what to make of it."""
    (tmp_path / ".intake").mkdir()
    task_id = new_id(4_000_000_000_000)
    drop(tmp_path / ".intake", f"{task_id}@x")
    assert only(take(clerk)).id == task_id


# --- Settling ---


def test_what_is_accepted_goes(clerk: Clerk, tmp_path: Path) -> None:
    """And only that; an id that was never handed over means nothing."""
    kept, gone = drop(tmp_path, "kept", age=20), drop(tmp_path, "gone")
    first, second = take(clerk).files
    assert do(clerk, Settle([second.id, new_id(0), "../../kept"], {new_id(1): "no", "../x": "no"})) == Fine()
    assert sorted(os.listdir(tmp_path / ".intake")) == [f"{first.id}@kept"]
    assert not kept.exists()
    assert not gone.exists()
    assert not (tmp_path / "rejected").exists()


def test_what_is_refused_is_explained_beside_it(clerk: Clerk, tmp_path: Path) -> None:
    """In words that can be read on any terminal; an older one of that name is kept."""
    for text in (b"first", b"second"):
        drop(tmp_path, "a.yaml", text)
        file = only(take(clerk))
        assert do(clerk, Settle([], {file.id: "bad \x1b[31mword"})) == Fine()
    folder = tmp_path / "rejected"
    assert (folder / "a.yaml").read_bytes() == b"first"
    assert (folder / f"{file.id}-a.yaml").read_bytes() == b"second"
    for name in ("a.yaml.error", f"{file.id}-a.yaml.error"):
        said = (folder / name).read_text()
        assert "\x1b" not in said
        assert said.endswith("Correct the file, then move it back into the spool.\n")


def test_a_file_that_went_before_it_was_settled_is_no_trouble(clerk: Clerk, tmp_path: Path) -> None:
    """Accepted it is gone anyway; of a refused one that its user took away he is told."""
    drop(tmp_path, "a", age=20)
    drop(tmp_path, "b")
    first, second = take(clerk).files
    for path in (tmp_path / ".intake").iterdir():
        path.unlink()
    assert do(clerk, Settle([first.id], {})) == Fine()
    reply = do(clerk, Settle([], {second.id: "no"}))
    assert isinstance(reply, Refused)
    assert reply.error == "No such file or directory"


def test_a_note_is_laid_beside_the_refused_files(clerk: Clerk, tmp_path: Path) -> None:
    """Wherever its name would lead."""
    assert do(clerk, Note("../../full.error", "too much\n")) == Fine()
    assert (tmp_path / "rejected" / "full.error").read_text() == "too much\n"


# --- Drop-offs of runs ---


def prepare(
    clerk: Clerk, cwd: Path, program: str = "sh", path: str = "/usr/bin:/bin", stdin: str = ""
) -> errands.Reply:
    """Have a drop-off made."""
    return do(clerk, Prepare(RUN, {"prompt.txt": b"do it", "task.json": b"{}"}, str(cwd), program, path, stdin))


def test_a_drop_off_is_made_for_its_user_alone(clerk: Clerk, tmp_path: Path) -> None:
    """With what the agent is to read in it; what was there before is gone."""
    place = tmp_path / ".runs" / RUN
    place.mkdir(parents=True)
    (place / "result.json").write_text("forged")
    assert prepare(clerk, tmp_path) == Ready("/usr/bin/sh")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"prompt.txt": b"do it", "task.json": b"{}"}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


def test_a_program_is_found_as_its_user_would(clerk: Clerk, tmp_path: Path) -> None:
    """On his PATH, from where he will stand; what is none is named."""
    tool = tmp_path / "tree" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    for program, path in (("tool", "bin"), ("bin/tool", "/bin"), ("./bin/../bin/tool", ""), (str(tool), "/bin")):
        assert prepare(clerk, tmp_path / "tree", program, path) == Ready(str(tool))
    reply = prepare(clerk, tmp_path, "no-such-tool")
    assert isinstance(reply, Refused)
    assert "there is no program 'no-such-tool'" in reply.error


def test_where_nobody_can_stand_nothing_is_started(clerk: Clerk, tmp_path: Path) -> None:
    """The error and the place are told as they are."""
    for place, error in ((tmp_path / "nowhere", "No such file or directory"), (drop(tmp_path, "f"), "Not a directory")):
        reply = prepare(clerk, place)
        assert isinstance(reply, Refused)
        assert (reply.error, reply.path) == (error, str(place))
    assert os.getcwd() != str(tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a", "../x.1", "/etc/x.1", "x.1/../../y.1", "x.", "X.1", "x.1\n", "x.-1"]
)
def test_what_is_no_run_is_never_made_read_or_removed(clerk: Clerk, tmp_path: Path, name: str) -> None:
    """Whatever it would mean as a path."""
    wanted: list[errands.Errand] = [Prepare(name, {}, "/", "sh", "/bin"), errands.Read(name, 10), Clear(name)]
    for errand in wanted:
        assert do(clerk, errand) == Refused(0, f"{name!r} is no run")
    assert os.listdir(tmp_path) == []


def test_files_of_a_drop_off_stay_in_it(clerk: Clerk, tmp_path: Path) -> None:
    """Wherever their names would lead."""
    do(clerk, Prepare(RUN, {"../../../x": b"1", "/y": b"2"}, "/", "sh", "/bin"))
    assert sorted(os.listdir(tmp_path / ".runs" / RUN)) == ["x", "y"]


def test_what_an_agent_left_is_read(clerk: Clerk, tmp_path: Path) -> None:
    """Progress alone while it runs; at the end its result and its artifacts too."""
    prepare(clerk, tmp_path)
    place = tmp_path / ".runs" / RUN
    (place / "progress").write_text("a" * 100 + "end")
    (place / "result.json").write_text('{"x": 1}')
    (tmp_path / "made.txt").touch()
    assert do(clerk, errands.Read(RUN, 3)) == Left(b"end")
    reply = do(clerk, errands.Read(RUN, 3, 1000, str(tmp_path), ("*.txt", "../*"), 10))
    assert reply == Left(b"end", b'{"x": 1}', "", ["made.txt"])


def test_without_a_result_there_is_none(clerk: Clerk, tmp_path: Path) -> None:
    """Nor without a drop-off, which its agent may have removed."""
    assert do(clerk, errands.Read(RUN, 3, 1000, str(tmp_path), (), 10)) == Left()


@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "folder", "socket", "hard link", "sparse giant"])
def test_what_is_no_result_is_not_read(clerk: Clerk, tmp_path: Path, kind: str) -> None:
    """It is said why, and nobody waits for anything; the same in place of progress is nothing."""
    prepare(clerk, tmp_path)
    place = tmp_path / ".runs" / RUN
    put(kind, place / "result.json")
    put(kind, place / "progress")
    reply = do(clerk, errands.Read(RUN, 10, 1000, str(tmp_path), (), 10))
    assert isinstance(reply, Left)
    assert reply.result is None
    assert reply.problem
    assert b"root" not in reply.progress


def test_a_drop_off_is_removed_with_all_that_is_in_it(clerk: Clerk, tmp_path: Path) -> None:
    """With folders; links in it lead nowhere; doing it again is no trouble."""
    prepare(clerk, tmp_path)
    place, kept = tmp_path / ".runs" / RUN, drop(tmp_path, "kept")
    (place / "link").symlink_to(tmp_path)
    (place / "d" / "d" / "d").mkdir(parents=True)
    for _ in range(2):
        assert do(clerk, Clear(RUN)) == Fine()
        assert os.listdir(tmp_path / ".runs") == []
    assert kept.exists()


def test_a_link_in_place_of_a_drop_off_is_not_followed(clerk: Clerk, tmp_path: Path) -> None:
    """What it leads to stays."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    drop(elsewhere, "kept")
    (tmp_path / ".runs").mkdir()
    (tmp_path / ".runs" / RUN).symlink_to(elsewhere)
    do(clerk, Clear(RUN))
    assert os.listdir(elsewhere) == ["kept"]


def test_old_things_are_pruned(clerk: Clerk, tmp_path: Path) -> None:
    """Refused files that are old, and drop-offs of runs that are over; the others stay."""
    (tmp_path / "rejected").mkdir()
    drop(tmp_path / "rejected", "old", age=1000)
    drop(tmp_path / "rejected", "young")
    prepare(clerk, tmp_path)
    (tmp_path / ".runs" / "other.1").mkdir()
    assert do(clerk, Prune(time.time() - 100, [RUN])) == Fine()
    assert os.listdir(tmp_path / "rejected") == ["young"]
    assert os.listdir(tmp_path / ".runs") == [RUN]


# --- The line ---


@pytest.fixture
def line(clerk: Clerk) -> Iterator[socket.socket]:
    """A line to a clerk at work."""
    ours, theirs = socket.socketpair()
    work = Thread(target=_serve, args=(clerk, theirs))
    work.start()
    with ours:
        ours.settimeout(10.0)
        yield ours
    work.join(10.0)
    assert not work.is_alive()


def _serve(clerk: Clerk, line: socket.socket) -> None:
    with line:  # he goes, and his line with him
        clerk.serve(line)


def test_what_nobody_understands_is_refused(line: socket.socket) -> None:
    """The line stays, for whoever says something better."""
    for garbage in (b"", b"\xc1", b"\x00" * 100, errands.encode(errands.Hire("x"))):
        frames.send(line, garbage)
        assert isinstance(errands.decode_reply(frames.receive(line, errands.LONGEST)[0]), Refused)
    frames.send(line, errands.encode(errands.Clear(RUN)))
    assert errands.decode_reply(frames.receive(line, errands.LONGEST)[0]) == Fine()


def test_standard_input_comes_along(line: socket.socket) -> None:
    """The prompt, open for reading."""
    frames.send(line, errands.encode(Prepare(RUN, {"prompt.txt": b"do it"}, "/", "sh", "/bin", "prompt.txt")))
    data, [fd] = frames.receive(line, errands.LONGEST)
    assert isinstance(errands.decode_reply(data), Ready)
    assert os.read(fd, 100) == b"do it"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    os.close(fd)


def test_a_message_that_is_too_long_ends_a_clerk(line: socket.socket) -> None:
    """He is no use to whoever sends such."""
    line.send((errands.LONGEST + 1).to_bytes(4, "big"))
    with pytest.raises(ConnectionError):
        frames.receive(line, errands.LONGEST)
