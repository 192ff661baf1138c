"""Logs: whole JSON lines in a file of bounded size, readable lines on a terminal."""

import errno
import fcntl
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import ROOT, command, run

from fairlead.base.files import names_in, opened
from fairlead.base.logs import open_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fairlead.log"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events_of(path: Path) -> list[str]:
    return [line["event"] for line in lines_of(path)]


def test_a_line_says_when_who_and_what(path: Path) -> None:
    """What every line has comes first, so that a person finds it in every line at the same place."""
    open_log(str(path), "daemon").bind(user="alice").warning("queued", task="t1")
    (line,) = lines_of(path)
    assert list(line) == ["timestamp", "level", "event", "process", "pid", "user", "task"]
    assert list(line.values())[1:] == ["warning", "queued", "daemon", os.getpid(), "alice", "t1"]
    assert line["timestamp"].endswith("Z")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("level", "logged"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_least_level_is_kept(level: str, logged: list[str], path: Path) -> None:
    """What is below the level is not written."""
    log = open_log(str(path), "daemon", level)
    log.debug("debug")
    log.info("info")
    log.warning("warning")
    log.error("error")
    assert events_of(path) == logged


def test_two_loggers_of_one_process_keep_apart(tmp_path: Path) -> None:
    """Each has its own file and level, whichever was opened or used first."""
    first = open_log(str(tmp_path / "first"), "daemon", "error")
    second = open_log(str(tmp_path / "second"), "watchdog", "debug")
    second.debug("to the second")
    first.error("to the first")
    first.info("to nobody")
    second.debug("again to the second")
    assert events_of(tmp_path / "first") == ["to the first"]
    assert events_of(tmp_path / "second") == ["to the second", "again to the second"]
    assert {line["process"] for line in lines_of(tmp_path / "second")} == {"watchdog"}


def test_a_fork_logs_under_its_own_pid(path: Path) -> None:
    """A logger that a process inherited says who really writes."""
    pids = run("base", "log_after_fork", path).split()
    assert [str(line["pid"]) for line in lines_of(path)] == pids


def test_a_line_is_plain_ascii(path: Path) -> None:
    """Whatever was logged, tail shows it and the terminal obeys none of it; JSON readers get it back."""
    text = "\x1b[2J\x9b\n\u202e\ud800é"
    open_log(str(path), "daemon").info("received", text=text, thing=set)
    raw = path.read_bytes()
    assert all(0x20 <= byte < 0x7F for byte in raw[:-1])
    assert raw.count(b"\n") == 1
    assert lines_of(path)[0]["text"] == text
    assert lines_of(path)[0]["thing"] == "<class 'set'>"


def test_processes_do_not_cut_into_each_others_lines(path: Path) -> None:
    """Eight processes write lines of up to several pages: each line is whole, and none is missing."""
    run("base", "write_log", path, 8, 200, 1 << 30, 5)
    assert_all_are_there(lines_of(path), processes=8, lines_each=200)


def assert_all_are_there(lines: list[dict[str, Any]], *, processes: int, lines_each: int) -> None:
    seen = sorted((line["process"], line["number"]) for line in lines)
    assert seen == sorted((f"p{process}", line) for process in range(processes) for line in range(lines_each))
    assert all(line["filler"] == "x" * (line["number"] * 37 % 9000) for line in lines)


def test_processes_rotate_together_and_lose_nothing(tmp_path: Path, path: Path) -> None:
    """Eight writers share a small limit: every file set aside was full, and all lines are in one of them."""
    run("base", "write_log", path, 8, 200, 50_000, 200)
    aside = [tmp_path / name for name in names_in(str(tmp_path)) if name != path.name]
    assert len(aside) > 3
    assert all(one.stat().st_size >= 50_000 for one in aside)
    current = lines_of(path) if path.exists() else []
    everything = [line for one in aside for line in lines_of(one)] + current
    assert_all_are_there(everything, processes=8, lines_each=200)


def test_a_full_file_is_set_aside(tmp_path: Path, path: Path) -> None:
    """The newest of the old files has number one, and no more are kept than were asked for."""
    log = open_log(str(path), "daemon", max_bytes=1, keep=3)
    for number in range(5):
        log.info(str(number))
    assert names_in(str(tmp_path)) == ["fairlead.log.1", "fairlead.log.2", "fairlead.log.3"]
    assert [events_of(tmp_path / f"fairlead.log.{number}") for number in (1, 2, 3)] == [["4"], ["3"], ["2"]]


def test_without_a_limit_nothing_is_set_aside(tmp_path: Path, path: Path) -> None:
    """A command that did not read the settings leaves a full file to the processes that did."""
    path.touch()
    os.truncate(path, 1 << 40)
    open_log(str(path), "cli").info("line")
    assert names_in(str(tmp_path)) == ["fairlead.log"]


def test_the_limit_is_passed_by_one_line_at_most(tmp_path: Path, path: Path) -> None:
    """A file is set aside with the line that fills it."""
    log = open_log(str(path), "daemon", max_bytes=10_000, keep=100)
    for _ in range(500):
        log.info("line")
    length = path.stat().st_size // len(lines_of(path))
    sizes = [(tmp_path / name).stat().st_size for name in names_in(str(tmp_path)) if name != path.name]
    assert len(sizes) > 3
    assert all(10_000 <= size < 10_000 + length for size in sizes)


def test_keeping_fewer_removes_the_rest(tmp_path: Path, path: Path) -> None:
    """After the setting was lowered, the files beyond it go at the next turn."""
    for keep in (4, 1):
        log = open_log(str(path), "daemon", max_bytes=1, keep=keep)
        for number in range(5):
            log.info("line", keep=keep, number=number)
    assert names_in(str(tmp_path)) == ["fairlead.log.1"]
    (line,) = lines_of(tmp_path / "fairlead.log.1")
    assert (line["keep"], line["number"]) == (1, 4)


def test_nobody_waits_for_another_who_rotates(tmp_path: Path, path: Path) -> None:
    """While another writer holds the full file, lines go on into it; afterwards it is set aside."""
    log = open_log(str(path), "daemon", max_bytes=1)
    path.touch()
    with opened(str(path), os.O_RDONLY) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        log.info("during")
        assert names_in(str(tmp_path)) == ["fairlead.log"]
    log.info("after")
    assert names_in(str(tmp_path)) == ["fairlead.log.1"]
    assert events_of(tmp_path / "fairlead.log.1") == ["during", "after"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_file_that_another_has_set_aside_is_left_alone(*, begun: bool, tmp_path: Path, path: Path) -> None:
    """A writer that finds its full file renamed does not rename the new one, whether that is begun or not."""
    log = open_log(str(path), "daemon", max_bytes=1 << 20)
    log.info("old")
    writer = log._processors[-1]  # type: ignore[attr-defined]
    with opened(str(path), os.O_RDONLY) as late:
        path.rename(tmp_path / "fairlead.log.1")
        if begun:
            log.info("new")
        writer._rotate(late)
    assert names_in(str(tmp_path)) == ["fairlead.log"] * begun + ["fairlead.log.1"]


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_file_that_went_away_is_begun_anew(how: str, path: Path) -> None:
    """Whether somebody deletes the log or moves it aside, the next line is in a new file."""
    log = open_log(str(path), "daemon")
    log.info("before")
    if how == "removed":
        path.unlink()
    else:
        path.rename(path.with_suffix(".old"))
    log.info("after")
    assert events_of(path) == ["after"]


def test_no_descriptor_stays_open(path: Path) -> None:
    """Between two lines nothing is held open, so that a fork or a detached process loses nothing."""
    log = open_log(str(path), "daemon")
    before = sorted(os.listdir("/proc/self/fd"))
    log.info("line")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The line is not lost, the reason is given, and the work goes on."""
    open_log("/dev/full", "daemon").info("important", task="t1")
    said = capsys.readouterr().err
    assert said.startswith(f"fairlead: cannot log to /dev/full: [Errno {errno.ENOSPC}] No space left on device: {{")
    assert json.loads(said[said.index("{") :])["task"] == "t1"


def test_a_line_that_did_not_fit_is_told_on_stderr(path: Path) -> None:
    """Where the disk took only a part of the line, stderr has all of it."""
    done = subprocess.run(command("base", "log_too_much", path), cwd=ROOT, check=True, stderr=subprocess.PIPE)
    assert path.stat().st_size == 1000
    assert json.loads(done.stderr[done.stderr.index(b"{") :])["filler"] == "x" * 2000


def test_a_missing_directory_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no file can be, the lines are on stderr."""
    open_log(str(tmp_path / "missing" / "log"), "daemon").info("line")
    assert "No such file or directory" in capsys.readouterr().err


def test_a_closed_terminal_stops_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When stderr is gone the file is still written."""
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    open_log(str(path), "daemon", terminal=True).info("line")
    assert events_of(path) == ["line"]


def test_a_terminal_shows_a_line_for_people(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time, what happened, and the rest; no level where it is the usual one, and nothing that is empty."""
    log = open_log(str(path), "daemon", terminal=True)
    log.info("queued", task="t1", note="", error=None, count=0)
    log.error("refused")
    first, second = capsys.readouterr().err.splitlines()
    assert first[:8] == lines_of(path)[0]["timestamp"][11:19]
    assert first[8:] == " queued task=t1 count=0"
    assert second[8:] == " ERROR refused"


def test_without_a_terminal_nothing_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A service writes its file alone."""
    open_log(str(path), "daemon").error("line")
    assert capsys.readouterr().err == ""


def test_a_terminal_obeys_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are spelled out in the event, in the fields and in a traceback, and no line is forged."""
    poison = "\x1b[2J\n12:00:00 forged\u202e"
    log = open_log(str(path), "daemon", terminal=True)
    log.info(poison, user=poison)
    try:
        raise ValueError(poison)  # noqa: TRY301 - the traceback is what is tested
    except ValueError:
        log.exception("broke")
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert [line[8:] for line in said.splitlines() if not line.startswith("  ")] == [
        r" \x1b[2J\n12:00:00 forged\u202e user=\x1b[2J\n12:00:00 forged\u202e",
        " ERROR broke",
    ]


def test_an_exception_is_written_out(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback is one field in the file, and lines of its own on the terminal."""
    log = open_log(str(path), "daemon", terminal=True)
    try:
        json.loads("nonsense")
    except ValueError:
        log.exception("broke", task="t1")
    (line,) = lines_of(path)
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert "JSONDecodeError: Expecting value" in line["exception"]
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].endswith(" ERROR broke task=t1")
    assert shown[1] == "  Traceback (most recent call last):"
    assert "JSONDecodeError" in shown[-1]
