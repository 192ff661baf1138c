"""Bad files of every kind: each is refused once, with a sentence that a person understands, and nobody else waits."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.instance import Home
from tests.support.patience import eventually, stays
from tests.support.rights import ordinary_rights

from fairlead.base.files import opened
from fairlead.queue.states import Status

GOOD = b'{"prompt": "true", "user": "ann"}'
Maker = Callable[[Path], None]


def content(data: bytes) -> Maker:
    """A regular file that holds this."""

    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


def symlink(path: Path) -> None:
    """A link to a file that would be good."""
    target = path.parents[1] / "elsewhere.json"
    target.write_bytes(GOOD)
    path.symlink_to(target)


def hard_link(path: Path) -> None:
    """A second name of a file that would be good."""
    target = path.parents[1] / "elsewhere.json"
    target.write_bytes(GOOD)
    path.hardlink_to(target)


def unix_socket(path: Path) -> None:
    """A socket that somebody bound."""
    with socket.socket(socket.AF_UNIX) as made, opened(str(path.parent), os.O_PATH) as folder:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")


def device(path: Path) -> None:
    """A device node, where we may make one."""
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("device nodes are root's")


def giant(path: Path) -> None:
    """A file of ten gigabytes that takes no place."""
    with path.open("wb") as file:
        file.truncate(10 << 30)


def full_directory(path: Path) -> None:
    """A directory with something in it, made elsewhere: nobody sees it half made."""
    hidden = path.with_name(".making")
    (hidden / "a").mkdir(parents=True)
    hidden.rename(path)


KINDS: dict[str, tuple[str, Maker, str]] = {
    "symbolic link": ("task.json", symlink, "it is a symbolic link"),
    "dangling link": ("task.json", lambda path: path.symlink_to("/nowhere"), "it is a symbolic link"),
    "fifo": ("task.json", os.mkfifo, "it is not a regular file"),
    "socket": ("task.json", unix_socket, "it is a socket or a device"),
    "device": ("task.json", device, "it is not a regular file"),
    "directory": ("task.json", lambda path: path.mkdir(), "it is not a regular file"),
    "full directory": ("folder", full_directory, "it is not a regular file"),
    "hard link": ("task.json", hard_link, "more than one name (hard link); copy it instead"),
    "sparse giant": ("task.yaml", giant, "it has 10737418240 bytes; at most 1048576 are allowed"),
    "empty": ("task.yaml", content(b""), "task.yaml: 1 problem"),
    "binary": ("task.yaml", content(bytes(range(256))), "task.yaml: 1 problem"),
    "not UTF-8": ("task.md", content("Grüße".encode("latin-1")), "UTF-8"),
    "deep YAML": ("task.yaml", content(b"payload: " + b"[" * 50_000), "nested"),
    "deep JSON": ("task.json", content(b'{"payload": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "nested"),
    "alias bomb": ("task.yaml", content(b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n"), "anchors are not allowed"),
    "wrong extension": ("task.txt", content(GOOD), ".yaml"),
    "no extension": ("task", content(GOOD), ".yaml"),
    "unknown key": ("task.yaml", content(b"promt: hello"), "did you mean"),
    "line end in the name": ("a\nb.txt", content(GOOD), ".yaml"),
    "longest name": ("x" * 250 + ".json", content(b"{"), "1 problem"),
    "longest name, not ASCII": ("ü" * 125 + ".json", content(b"{"), "1 problem"),
    "name that is no text": (os.fsdecode(b"\xff\xfe.json"), content(b"{"), "1 problem"),
    "escape sequence in the name": ("\x1b[2J.json", content(b"{"), "1 problem"),
}


def lay(home: Home, name: str, make: Maker) -> None:
    """Put something bad into the spool, old enough to be complete."""
    path = Path(home.paths.spool, name)
    make(path)
    os.utime(path, (1, 1), follow_symlinks=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_is_refused_once(home: Home, kind: str) -> None:
    """It leaves the spool with an explanation beside it, and is never looked at again."""
    name, make, word = KINDS[kind]
    dispatcher = home.dispatcher()
    lay(home, name, make)
    dispatcher.run_once()
    [refused] = home.rejected()
    assert os.fsencode(name).endswith(os.fsencode(refused))
    said = home.error_of(refused)
    assert word in said
    assert "\x1b" not in said
    assert "Correct the file, then move it back into the spool." in said
    dispatcher.run_once()
    dispatcher.run_once()
    assert len(home.log("rejected")) == 1
    assert home.tasks() == []
    assert sorted(os.listdir(home.paths.spool)) == [".intake", "rejected"]
    assert os.listdir(home.paths.intake) == []


def test_an_unreadable_file_is_refused(home: Home) -> None:
    """A file without read rights is refused with the kernel's word for it."""
    dispatcher = home.dispatcher()
    lay(home, "task.json", content(GOOD))
    Path(home.paths.spool, "task.json").chmod(0)
    with ordinary_rights():
        dispatcher.run_once()
    assert home.rejected() == ["task.json"]
    assert "Permission denied" in home.error_of("task.json")


def test_what_cannot_be_moved_stops_nobody(home: Home) -> None:
    """A directory that cannot be taken out is explained once and left; files behind it are taken; its repair counts."""
    dispatcher = home.dispatcher()
    lay(home, "folder", lambda path: path.mkdir(0o500))
    lay(home, "task.json", content(GOOD))
    with ordinary_rights():
        for _ in range(3):
            dispatcher.run_once()
    assert [task.status for task in home.tasks()] == [Status.CLAIMED]
    assert len(home.log("cannot_take_in", file="folder")) == 1
    assert "it cannot be moved out of the spool" in home.error_of("folder")
    Path(home.paths.spool, "folder").chmod(0o700)
    with ordinary_rights():
        dispatcher.run_once()
    [refused] = home.rejected()
    assert refused.endswith("folder")


def test_a_file_that_goes_before_it_is_taken_is_forgotten(home: Home) -> None:
    """Somebody removes his file between the look and the taking: that is no reason to complain."""
    dispatcher = home.dispatcher()
    dispatcher.waiting_names = ["gone.json"]
    dispatcher.run_once()
    assert os.listdir(home.paths.rejected) == []
    assert home.log("cannot_take_in") == []


def test_the_same_bad_name_twice_keeps_both(home: Home) -> None:
    """A second refused file of a name gets its id before it; the first one stays."""
    dispatcher = home.dispatcher()
    for _ in range(2):
        lay(home, "task.json", content(b"{"))
        dispatcher.run_once()
    names = home.rejected()
    assert len(names) == 2
    assert all(name.endswith("task.json") for name in names)


def test_a_corrected_file_is_taken(home: Home) -> None:
    """Who mends a refused file and moves it back gets his task."""
    dispatcher = home.dispatcher()
    lay(home, "task.json", content(b"{"))
    dispatcher.run_once()
    mended = Path(home.paths.rejected, "task.json")
    mended.write_bytes(GOOD)
    os.utime(mended, (1, 1))
    mended.rename(Path(home.paths.spool, "task.json"))
    dispatcher.run_once()
    assert len(home.tasks()) == 1


def test_a_good_file_among_two_hundred_bad_ones_starts_with_the_same_pass(home: Home) -> None:
    """Refusing many files costs the good one no pass."""
    dispatcher = home.dispatcher()
    for number in range(200):
        _, make, _ = list(KINDS.values())[number % len(KINDS)]
        lay(home, f"bad-{number}.txt", make if make is not device else content(b""))
        Path(home.path, "elsewhere.json").unlink(missing_ok=True)
    lay(home, "good.json", content(GOOD))
    dispatcher.run_once()
    assert [task.status for task in home.tasks()] == [Status.CLAIMED]
    assert len(home.rejected()) == 200


def test_the_daemon_goes_on_beside_bad_files(home: Home) -> None:
    """As a process, too: bad files of every kind are refused, good ones run, and it does not turn over any of them."""
    daemon, _ = home.up()
    bad = [make for kind, (_, make, _) in KINDS.items() if kind != "device"]
    for number, make in enumerate(bad):
        make(Path(home.paths.spool, f"bad-{number}.txt"))
        Path(home.path, "elsewhere.json").unlink(missing_ok=True)
    home.drop("good.json", "true")
    home.wait_over(home.only_task().id)
    eventually(lambda: len(home.log("rejected")) == len(bad), "all bad files are refused")
    stays(lambda: len(home.log("rejected")) == len(bad), "each is refused once")
    assert daemon.poll() is None
