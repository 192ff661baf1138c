"""One user drops a great many files at once: how soon another's first task starts then, against an idle instance.

Measured in the system's instance, on a booted host of its own (tests/support/booted), whose users are real. The files
are on the file system of the benchmarks' directory, through a loop device, so that every sync is one.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median

from tests.support.booted.host import FAIRLEAD, PYTHON, Host, boot

from bench.dropping import SPOOL
from bench.figures import Figure, Target, at_most, ms
from bench.instance import wait_for
from bench.plan import Plan

FLOODER, OTHER = "alice", "bob"
DAEMON = "fairlead-daemon.service"
MOST_MB = 200.0
BOUND = 2
SCRIPT = "/opt/source/bench/dropping.py"
_PLACES = ("/var/lib/fairlead", SPOOL)
_DISK = "8G"
_TOO_SOON = "the flood was over too soon: drop more files"
#: Rounds that are measured between two looks whether the flood is over.
_ROUNDS = 10


def run(plan: Plan) -> Iterator[Figure]:
    """Measure."""
    if os.geteuid() != 0:
        yield Figure(what="a flood of files", measured="not measured", against="only root can boot a host")
        return
    with _disk(plan.place) as device, closing(boot()) as host:
        _mount(host, device)
        install(host)
        probe(host, _ROUNDS)
        idle = probe(host, plan.rounds)
        flooded = _flooded(host, plan)
        used = peak(host)
    for name, of in (("median", median), ("p99", p99)):
        ratio = of(flooded) / of(idle)
        yield Figure(
            what=f"{OTHER}'s file to his agent's start, {name}, {plan.flood:,} files of {FLOODER} come in",
            measured=ms(of(flooded)),
            against=f"{ms(of(idle))}: idle",
            ratio=ratio,
            target=at_most(ratio, BOUND),
        )
    yield Figure(
        what="memory of the daemon (RSS, peak) meanwhile",
        measured=f"{used:.0f} MB",
        against=f"{MOST_MB:.0f} MB",
        target=Target(f"below {MOST_MB:.0f} MB", used < MOST_MB),
    )


def p99(times: list[float]) -> float:
    """Of a hundred of them, ninety-nine are not longer."""
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def install(host: Host) -> None:
    """The system's instance, with two users who may use it."""
    host.direct("groupadd", "--system", "fairlead")
    for user in (FLOODER, OTHER):
        host.useradd(user, "fairlead")
    host.run(FAIRLEAD, "install", "--system", "--enable")
    for user in (FLOODER, OTHER):
        wait_for(host.path(f"{SPOOL}/{user}").exists, f"the spool of {user}")


def probe(host: Host, rounds: int) -> list[float]:
    """Seconds from a dropped file of the other user to his agent's start, so many times."""
    printed = host.run(PYTHON, SCRIPT, "probe", rounds, user=OTHER).stdout
    return [float(line) for line in printed.splitlines()]


def flood(host: Host, count: int) -> None:
    """Drop so many files at once; returns when the last is dropped: what follows is the queue's, not his programs'."""
    host.run(PYTHON, SCRIPT, "flood", count, user=FLOODER)
    if not is_coming_in(host):
        raise RuntimeError(_TOO_SOON)


def is_coming_in(host: Host) -> bool:
    """Whether files of the flood wait to be taken in."""
    with os.scandir(host.path(f"{SPOOL}/{FLOODER}")) as entries:
        return any(entry.name.startswith("flood") for entry in entries)


def _flooded(host: Host, plan: Plan) -> list[float]:
    """While the flood comes in, and as long as it takes for as many rounds as were measured before."""
    flood(host, plan.flood)
    times = probe(host, plan.rounds)
    while len(times) < plan.flooded and is_coming_in(host):
        times += probe(host, _ROUNDS)
    if not is_coming_in(host):
        raise RuntimeError(_TOO_SOON)
    return times


def peak(host: Host) -> float:
    """The most memory that the daemon has had, in MB."""
    status = host.path(f"/proc/{host.main_pid(DAEMON)}/status").read_text()
    [line] = [one for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


@contextmanager
def _disk(place: str) -> Iterator[str]:
    """A device whose blocks are on the disk that holds `place`: a booted host has all of its own in memory."""
    image = os.path.join(place, "flood.img")
    _do("truncate", "--size", _DISK, image)
    _do("mkfs.ext4", "-q", "-F", "-N", "500000", image)
    device = _do("losetup", "--find", "--show", image)
    try:
        yield device
    finally:
        _do("losetup", "--detach", device)
        os.unlink(image)


def _mount(host: Host, device: str) -> None:
    """Let the instance's places be on it."""
    host.direct("mknod", device, "b", "7", device.removeprefix("/dev/loop"))
    host.direct("mkdir", "/disk")
    host.direct("mount", device, "/disk")
    for folder in _PLACES:
        host.direct("mkdir", "--parents", folder, f"/disk{folder}")
        host.direct("mount", "--bind", f"/disk{folder}", folder)


def _do(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
