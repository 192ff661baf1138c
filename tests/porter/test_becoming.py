"""Becoming a user: wholly, and for good."""

import os
import pwd
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.patience import eventually
from tests.support.porters import RealPorter, as_user, real_porter

from fairlead.conductor.tree import children_of
from fairlead.porter.becoming import Identity, NotBecomeError, become


@pytest.fixture(scope="module")
def clerk() -> Iterator[int]:
    """A clerk of nobody's who waits for errands."""
    with real_porter("nobody") as porter, porter.client().hire("nobody"):
        [pid] = porter.wait_clerks(1)
        _wait_for_user(porter, pid)
        yield pid


def _wait_for_user(porter: RealPorter, pid: int) -> None:
    porter.run("nobody")  # the desk has seen to the first before it sees to this one
    eventually(lambda: _status(pid)["NoNewPrivs"] == "1", "he does not become anybody")


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_clerk_has_all_ids_of_his_user_and_none_of_roots(clerk: int) -> None:
    """Real, effective, saved and file system's; the groups are his user's; there is no capability and no way to one."""
    entry, status = pwd.getpwnam("nobody"), _status(clerk)
    assert status["Uid"].split() == [str(entry.pw_uid)] * 4
    assert status["Gid"].split() == [str(entry.pw_gid)] * 4
    groups = {str(gid) for gid in os.getgrouplist("nobody", entry.pw_gid)}
    assert set(status["Groups"].split()) == groups
    assert "0" not in groups
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_a_clerk_has_nothing_of_the_porters_but_his_line(clerk: int) -> None:
    """Three descriptors that lead nowhere and one line; not the door, nor anybody else's line."""
    places = {fd: os.readlink(f"/proc/{clerk}/fd/{fd}") for fd in os.listdir(f"/proc/{clerk}/fd")}
    assert [places.pop(fd) for fd in "012"] == ["/dev/null"] * 3
    [line] = places.values()
    assert line.startswith("socket:")


def test_a_clerk_stands_where_nothing_is_his(clerk: int) -> None:
    """In the root directory, making files that are his user's alone, hearing signals as any program does."""
    status = _status(clerk)
    assert os.readlink(f"/proc/{clerk}/cwd") == "/"
    assert status["Umask"] == "0077"
    assert int(status["SigBlk"], 16) == int(status["SigCgt"], 16) == 0
    # Whoever writes to a file while he asks about it must not kill him with that.
    # (32 and 33 are the C library's own.)
    assert int(status["SigIgn"], 16) & ~(3 << 31) == 1 << signal.SIGIO - 1


def test_a_clerk_is_held_back(clerk: int) -> None:
    """He has some time, memory and descriptors, and leaves no core behind."""
    lines = Path(f"/proc/{clerk}/limits").read_text().splitlines()[1:]
    limits = {line[:26].strip(): line[26:].split()[:2] for line in lines}
    assert limits["Max cpu time"] == ["120", "120"]
    assert limits["Max open files"] == ["64", "64"]
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max address space"] == [str(1 << 30)] * 2


def test_his_user_cannot_look_into_a_clerk(clerk: int) -> None:
    """What was root a moment ago shows neither its memory nor its descriptors."""
    assert as_user("nobody", lambda: os.kill(clerk, 0)) == 0
    assert as_user("nobody", lambda: os.listdir(f"/proc/{clerk}/fd")) != 0
    assert as_user("nobody", lambda: os.open(f"/proc/{clerk}/mem", os.O_RDONLY)) != 0


def test_there_is_no_way_back() -> None:
    """Whoever has become a user can become nobody else, root least of all."""
    if os.geteuid() != 0:
        pytest.skip("becoming other users takes root")
    entry = pwd.getpwnam("nobody")
    who = Identity("nobody", entry.pw_uid, entry.pw_gid, "/")
    ways = [lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0)]
    ways += [lambda: os.seteuid(0), lambda: os.setreuid(0, -1), lambda: os.chown("/", 0, 0)]
    assert _in_child(lambda: become(who)) == "well"
    for number, way in enumerate(ways):
        assert _in_child(lambda way=way: _become_and(who, way)) == "PermissionError", number  # type: ignore[misc]


def _become_and(who: Identity, way: Callable[[], object]) -> None:
    become(who)
    way()


def test_nobody_becomes_root() -> None:
    """Under any name."""
    if os.geteuid() != 0:
        pytest.skip("becoming other users takes root")
    assert _in_child(lambda: become(Identity("root", 0, 0, "/root"))) == NotBecomeError.__name__
    assert _in_child(lambda: become(Identity("nobody", 0, 65534, "/"))) == NotBecomeError.__name__


def _in_child(do: Callable[[], object]) -> str:
    """How it ends in a process of its own: well, or the name of an error."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        said = "well"
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is asked for
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read().decode()
    os.wait()
    return said


def test_a_clerk_goes_with_his_line(porter: RealPorter) -> None:
    """When whoever hired him hangs up, he is gone, and is no zombie."""
    with porter.client().hire("bin"):
        [pid] = porter.wait_clerks(1)
    porter.wait_clerks(0)
    eventually(lambda: pid not in children_of(porter.process.pid), "a zombie is left")
