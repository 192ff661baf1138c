"""Identity: a pid alone proves nothing."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.programs import run_in_pid_namespace, started

from fairlead.base.identity import ProcessId, boot_id, host, is_alive, read_stat, start_of, this_process


def test_this_process_is_alive() -> None:
    """The calling process has its pid and a start time, and both prove it alive."""
    process = this_process()
    assert process.pid == os.getpid()
    assert is_alive(process)


def test_a_process_of_another_start_is_another() -> None:
    """The same pid with another start time is a predecessor or a successor."""
    pid, start = this_process()
    assert not is_alive(ProcessId(pid, start + 1))


def test_a_reused_pid_is_another_process() -> None:
    """The kernel gives a dead process's pid to a new one: only the new one is alive."""
    assert run_in_pid_namespace("base", "reuse_pid") == "100 True\n100 True False\n"


def test_a_zombie_has_ended() -> None:
    """A process that ended and was not waited for counts as dead, though the kernel still lists it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        start = start_of(process.pid)
        assert start is not None
        assert is_alive(ProcessId(process.pid, start))
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it ended, and stays a zombie
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.state == "Z"
        assert start_of(process.pid) is None
        assert not is_alive(ProcessId(process.pid, start))
    assert read_stat(process.pid) is None


@pytest.mark.parametrize("name", [") R 1 2 3 (", "a b", "(((", ")))", "x) Z 0 (y", "tab\there"])
def test_odd_names_deceive_nobody(name: str) -> None:
    """Whatever a process calls itself, its parent, session and start are the kernel's."""
    with started("base", "be_called", name) as process:
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.parent == os.getpid()
        assert stat.session == os.getsid(0)
        assert stat.state in "RS"
        own = this_process().start
        assert own <= stat.start <= own + 100 * 86400 * 365


@pytest.mark.parametrize("pid", [0, -1, 1 << 30])
def test_what_cannot_be_a_process_is_none(pid: int) -> None:
    """A pid that cannot exist is dead, not an error."""
    assert read_stat(pid) is None
    assert start_of(pid) is None


def test_the_boot_and_the_host_have_names() -> None:
    """The boot id is the kernel's and stays; the host is this one."""
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", boot_id())
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host() == socket.gethostname()
