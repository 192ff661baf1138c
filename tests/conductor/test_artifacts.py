"""Artifacts: what patterns find in a tree that an agent made, and what they never do."""

import glob
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.conductor import artifacts
from fairlead.conductor.artifacts import find_artifacts

FILES = ("a.txt", "b.log", ".c", "out/a.txt", "out/.d/e.txt", "out/deep/er/f.txt", "out/[x].txt", "odd/** /g")
PARTS = ("**", "*", "*.txt", "a.txt", "out", "deep", ".*", "?.log", "[a-c]*", "[!a]*", "[[]x].txt", ".", "", "odd", "[")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with some files in it."""
    root = tmp_path_factory.mktemp("tree")
    for name in FILES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=5))
def test_patterns_mean_what_pythons_mean(tree: Path, parts: list[str]) -> None:
    """In a tree without links, a pattern finds the files that Python's glob finds with it."""
    pattern = "/".join(parts)
    names = [] if pattern.startswith("/") else glob.iglob(pattern, root_dir=tree, recursive=True, include_hidden=True)
    assert find_artifacts(str(tree), [pattern], 1000) == sorted(
        {os.path.normpath(name) for name in names if os.path.isfile(f"{tree}/{name}")}
    )


def test_several_patterns_find_a_file_once(tree: Path) -> None:
    """A file that two patterns name is one artifact; no pattern, no artifact."""
    assert find_artifacts(str(tree), ["*.txt", "a*", "**/a.txt"], 10) == ["a.txt", "out/a.txt"]
    assert find_artifacts(str(tree), [], 10) == []


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../*", "out/../../*", "**/../*", "/etc/*", "..", "/", ""])
def test_no_pattern_leads_out(tree: Path, pattern: str) -> None:
    """An absolute pattern, or one with `..` in it, finds nothing."""
    assert find_artifacts(str(tree), [pattern], 10) == []


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A tree with links to inside, to outside and to itself."""
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "file").touch()
    (tmp_path / "rootless").mkdir()
    (tmp_path / "rootless" / "secret").touch()
    for name, target in {
        "to_inside": "inside",
        "to_file": "inside/file",
        "to_outside": "../rootless",
        "to_sibling": str(tmp_path / "rootless"),
        "to_secret": "../rootless/secret",
        "to_root": "/",
        "inside/loop": ".",
        "inside/up": "..",
        "dangling": "nowhere",
        "itself": "itself",
    }.items():
        os.symlink(target, root / name)
    return root


def test_links_lead_nowhere_outside(linked: Path) -> None:
    """Links to files and directories inside are followed where they are named, those to outside never."""
    assert find_artifacts(str(linked), ["*"], 100) == ["to_file"]
    assert find_artifacts(str(linked), ["*/*"], 100) == ["inside/file", "to_inside/file"]
    assert find_artifacts(str(linked), ["to_inside/file", "inside/loop/file"], 100) == [
        "inside/loop/file",
        "to_inside/file",
    ]
    for pattern in (
        "to_outside/*",
        "to_outside/secret",
        "to_secret",
        "to_sibling/*",
        "to_root/etc/passwd",
        "to_root/*",
    ):
        assert find_artifacts(str(linked), [pattern], 100) == []


def test_two_stars_follow_no_links(linked: Path) -> None:
    """Loops of links do not multiply what `**` finds."""
    assert find_artifacts(str(linked), ["**"], 100) == ["inside/file", "to_file"]
    assert find_artifacts(str(linked), ["**/file"], 100) == ["inside/file"]


def test_the_working_directory_may_be_a_link(linked: Path) -> None:
    """Files below a working directory that is reached through a link are inside."""
    (linked.parent / "cwd").symlink_to(linked)
    assert find_artifacts(str(linked.parent / "cwd"), ["to_file", "inside/file"], 100) == ["inside/file", "to_file"]


def test_only_files_are_artifacts(tmp_path: Path) -> None:
    """Directories, FIFOs and what cannot be read are passed over."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    assert find_artifacts(str(tmp_path), ["*", "**", "nowhere/*", "file/*"], 100) == ["file"]


@contextmanager
def nested(root: Path, name: str, depth: int) -> Iterator[str]:
    """Directories within directories, each with a file in it; Python could not even remove them."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT, dir_fd=fd))
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    try:
        yield str(root)
    finally:
        subprocess.run(["rm", "-rf", root / name], check=True)


def test_depth_is_no_danger(tmp_path: Path) -> None:
    """Directories nested deeper than Python can call are searched to the bottom."""
    depth = sys.getrecursionlimit() + 20
    with nested(tmp_path, "d", depth) as root:
        assert len(find_artifacts(root, ["**/file"], 10_000)) == depth


def test_length_is_no_danger(tmp_path: Path) -> None:
    """Directories nested deeper than a path can be long are searched as far as paths go."""
    with nested(tmp_path, "d" * 250, 20) as root:
        assert 10 < len(find_artifacts(root, ["**/file"], 10_000)) < 20


def test_the_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many looks the search stops with what it has, even in one huge directory or with many stars."""
    for number in range(300):
        (tmp_path / f"{number:03}").touch()
    monkeypatch.setattr(artifacts, "MOST_LOOKS", 100)
    assert 0 < len(find_artifacts(str(tmp_path), ["*"], 10_000)) < 100
    assert find_artifacts(str(tmp_path), ["nothing*", "*"], 10_000) == []


def test_time_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time left nothing is found, and nothing goes wrong."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(artifacts, "MOST_SECONDS", -1.0)
    assert find_artifacts(str(tmp_path), ["*", "file", "**"], 10) == []


def test_many_stars_are_quick(tmp_path: Path) -> None:
    """A pattern made to be slow is looked at once for every directory, not once for every way to read it."""
    with nested(tmp_path, "d", 30) as root:
        assert len(find_artifacts(root, ["**/" * 10 + "file"], 10_000)) == 30
