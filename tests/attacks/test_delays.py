"""Keeping services waiting: whatever a user can hold up, he holds up for himself alone."""

import signal
import time

import pytest
from tests.attacks.siege import SPOOLS, STATE, Siege
from tests.support.booted.host import PYTHON
from tests.support.patience import eventually

#: What alice may have to wait for a task that does nothing; the delays that are tried are tens of seconds.
SOON = 4.0
#: Opening a file waits for whoever holds a lease on it, up to fs.lease-break-time.
LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def alice_is_served_soon(siege: Siege) -> None:
    begun = time.monotonic()
    siege.run_for_alice()
    assert time.monotonic() - begun < SOON


def test_a_program_that_cannot_be_opened_delays_nobody_else(siege: Siege, mallory: str) -> None:
    """Systemd cannot execute it for most of a minute; everybody else's units start as ever."""
    siege.sh(mallory, "cp /bin/true held; chmod 0755 held")
    with siege.start(mallory, PYTHON, "-c", LEASE, f"/home/{mallory}/held") as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        title = siege.task(mallory, "", command=[f"/home/{mallory}/held"])
        siege.starting(mallory)
        for _ in range(3):
            alice_is_served_soon(siege)
        holder.communicate()
    assert siege.record(title)["status"] == "completed"


#: Sends a signal to every clerk of this user but the first, who collects files: the others look after runs.
TO_CLERKS = r"""
import os, signal, sys
number, spared, met = int(sys.argv[1]), int(sys.argv[2]), []
print("watching", flush=True)
while True:
    for name in set(filter(str.isdigit, os.listdir("/proc"))) - {*met}:
        try:
            if open(f"/proc/{name}/cmdline", "rb").read().endswith(b"\0porter\0"):
                os.kill(int(name), 0)
                met.append(name)
                if len(met) > spared:
                    os.kill(int(name), number)
        except OSError:
            pass
"""


@pytest.mark.parametrize("spared", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_clerks_that_are_stopped_or_killed_delay_nobody_else(
    number: int, spared: int, siege: Siege, mallory: str
) -> None:
    """Whoever handles clerks waits for none of them; what was not handed over is not lost."""
    with siege.start(mallory, PYTHON, "-c", TO_CLERKS, int(number), spared) as fiend:
        assert fiend.stdout
        assert fiend.stdout.readline() == "watching\n"
        title = siege.task(mallory, "true")
        for _ in range(3):
            alice_is_served_soon(siege)
        siege.end(fiend, mallory)
    assert is_known(siege, mallory, title)


def is_known(siege: Siege, user: str, title: str) -> bool:
    """Whether a file still waits in its spool, or its task has become a run, or a record."""
    waiting = [path.name for path in (*siege.spool(user).iterdir(), *siege.spool(user).glob(".intake/*"))]
    runs = siege.host.path(f"{STATE}/conductor").glob("*/active/*/task.json")
    return (
        any(name.endswith(f"{title}.json") for name in waiting)
        or any(title in run.read_text() for run in runs)
        or siege.record(title)["status"] in ("completed", "failed")
    )


@pytest.mark.parametrize("target", ["/etc", "/dev/shm/full"])
def test_trouble_that_a_user_makes_for_himself_is_not_the_machines(target: str, siege: Siege, mallory: str) -> None:
    """Where his drop-offs would go nothing can be written: his task fails, and nobody else's waits."""
    siege.sh(
        "root", "mkdir -p /dev/shm/full; mountpoint -q /dev/shm/full || mount -t tmpfs -o size=4k none /dev/shm/full"
    )
    siege.sh("root", "chmod 1777 /dev/shm/full; dd if=/dev/zero of=/dev/shm/full/all 2>/dev/null || true")
    siege.sh(mallory, f"ln -s {target} {SPOOLS}/{mallory}/.runs")
    title = siege.task(mallory, "true")
    for _ in range(3):
        alice_is_served_soon(siege)
    record = siege.record(title)
    assert (record["status"], record["reason"]) == ("failed", "not_started")


def test_whoever_writes_on_after_the_end_is_not_awaited(siege: Siege, mallory: str) -> None:
    """A process outside of the unit has a pipe of the agent open, and fills it for as long as somebody reads."""
    flood = """
import os, sys
pipe = os.open(sys.argv[1], os.O_WRONLY)
print("open", flush=True)
while True:
    os.write(pipe, b"x" * 65536)
"""
    title = siege.task(mallory, "echo $$ > ~/pid; until [ -e ~/go ]; do sleep 0.01; done")
    pid = eventually(
        lambda: (path := siege.host.path(f"/home/{mallory}/pid")).exists() and path.read_text().strip(), "no agent"
    )
    with siege.start(mallory, PYTHON, "-c", flood, f"/proc/{pid}/fd/1") as stranger:
        assert stranger.stdout
        assert stranger.stdout.readline() == "open\n"
        siege.sh(mallory, "touch ~/go")
        assert siege.record(title)["status"] == "completed"
        siege.end(stranger, mallory)
