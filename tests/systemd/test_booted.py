"""The hosts that tests boot: real, their own, and gone afterwards."""

import contextlib
import glob
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.booted.host import FAIRLEAD, KEEPER, Host, boot
from tests.support.patience import eventually


def test_a_command_runs_in_a_unit_of_its_own(booted: Host) -> None:
    """Its output and exit code come back, and the manager knows the unit."""
    done = booted.run("sh", "-c", "cat /proc/self/cgroup; cat; exit 3", check=False, stdin="heard")
    assert done.returncode == 3
    assert ".service" in done.stdout
    assert done.stdout.endswith("heard")


def test_users_are_real_and_can_run_the_project(booted: Host) -> None:
    """An ordinary user inside, who cannot enter root's home, runs the installed command."""
    uid = booted.useradd("ursula")
    assert booted.run("id", "-u", user="ursula").stdout.strip() == str(uid)
    assert booted.run(FAIRLEAD, "--version", user="ursula").stdout.startswith("fairlead ")


def test_the_journal_can_be_read(booted: Host) -> None:
    """What a unit says is found by its fields."""
    booted.run("systemd-cat", "-t", "somebody", "echo", "a word")
    assert [entry["MESSAGE"] for entry in booted.journal("-t", "somebody")] == ["a word"]


def test_nothing_written_inside_is_seen_outside(booted: Host) -> None:
    """The host's files are below, and stay as they are."""
    booted.write("/usr/local/share/somebody-was-here", "word")
    assert booted.run("cat", "/usr/local/share/somebody-was-here").stdout == "word"
    assert not os.path.exists("/usr/local/share/somebody-was-here")


def seconds_to_boot() -> float:
    before = time.monotonic()
    with contextlib.closing(boot()) as host:
        took = time.monotonic() - before
        assert host.is_active("multi-user.target")
    return took


def test_it_boots_within_two_seconds() -> None:
    """Otherwise nobody would take a fresh one for one test. On a busy machine one of three is enough."""
    assert any(seconds_to_boot() < 2 for _ in range(3))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where keepers of this test have their directories."""
    boot().close()  # skips where there is none to be had
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left_in(place: Path, name: str) -> list[str]:
    """What is left of a host: its directory and its cgroups."""
    return [*map(str, place.iterdir()), *glob.glob(f"/sys/fs/cgroup/**/{name}", recursive=True)]


def start_keeper() -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(KEEPER)], stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def booted_by(keeper: "subprocess.Popen[str]") -> tuple[int, str]:
    """The manager's pid, and the name that its directories have."""
    assert keeper.stdout
    pid, console = keeper.stdout.readline().split()
    return int(pid), Path(console).parent.name


def is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_a_closed_host_leaves_nothing(place: Path) -> None:
    """Neither processes, nor directories, nor cgroups."""
    keeper = start_keeper()
    manager, name = booted_by(keeper)
    assert left_in(place, name)
    keeper.communicate()
    assert is_gone(manager)
    assert left_in(place, name) == []


def test_a_host_ends_with_its_starter(place: Path) -> None:
    """A test run that is killed leaves no systemd behind."""
    start = "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True).wait()"
    program = [sys.executable, "-c", f"import subprocess, sys; {start}", sys.executable, str(KEEPER)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        manager, name = booted_by(process)
        process.kill()
    eventually(lambda: is_gone(manager), "the manager lives on")
    eventually(lambda: not left_in(place, name), "something is left")


def test_a_starter_that_dies_while_it_boots_leaves_nothing(place: Path) -> None:
    """The keeper has nobody to tell of the host, and ends it all the same."""
    keeper = start_keeper()
    assert keeper.stdin
    assert keeper.stdout
    keeper.stdout.close()
    eventually(lambda: list(place.glob("fairlead-booted-*/cgroups")), "it does not begin")
    [state] = place.glob("fairlead-booted-*")
    keeper.stdin.close()
    keeper.wait()
    assert left_in(place, state.name) == []


def test_a_killed_keeper_takes_its_host_along(place: Path) -> None:
    """The kernel ends the host, and the next keeper removes its directories."""
    keeper = start_keeper()
    manager, name = booted_by(keeper)
    keeper.kill()
    keeper.wait()
    eventually(lambda: is_gone(manager), "the manager lives on")
    following = start_keeper()
    booted_by(following)
    assert name not in os.listdir(place)
    assert glob.glob(f"/sys/fs/cgroup/**/{name}", recursive=True) == []
    following.communicate()
