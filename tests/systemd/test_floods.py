"""The system's instance under users who drop too much, and on a disk that is full: others hardly notice."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median

import pytest
from bench.dropping import SPOOL
from bench.flood import DAEMON, FLOODER, MOST_MB, OTHER, flood, install, peak, probe
from tests.support.booted.host import Host, boot
from tests.support.patience import eventually
from tests.support.small_disk import MEGABYTE, SmallDisk

SETTINGS = "/etc/fairlead/config.yaml"
FILES = 3000
#: Wide: whoever else is on this machine is in both figures, but not evenly. `python -m bench flood` is exact.
BOUND = 5
STATE = "/var/lib/fairlead"


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with closing(boot()) as booted:
        booted.write(SETTINGS, f"limits:\n  spool_files: {FILES // 2}\n")
        install(booted)
        yield booted


def drop(host: Host, user: str, name: str, script: str) -> None:
    """As a user should: complete, by renaming it into the spool."""
    move = 'cat >"$1/.$2" && mv "$1/.$2" "$1/$2"'
    host.run("sh", "-c", move, "sh", f"{SPOOL}/{user}", name, user=user, stdin=json.dumps({"prompt": script}))


def word(host: Host) -> str:
    """What the daemon tells systemd."""
    return host.property_of(DAEMON, "StatusText")


def test_a_flood_by_one_costs_another_little(host: Host) -> None:
    """While thousands of files come in, another's task starts nearly as soon as ever; the flooder is told his limit."""
    probe(host, 3)
    idle = probe(host, 15)
    flood(host, FILES)
    flooded = probe(host, 15)
    assert median(flooded) < BOUND * median(idle)
    note = host.path(f"{SPOOL}/{FLOODER}/rejected/spool-is-full.error")
    text = eventually(lambda: note.exists() and note.read_text(), "nobody tells him")
    assert re.search(rf"{FLOODER} has \d+ files with \d+ bytes in the spool; limits.spool_files is {FILES // 2}", text)
    assert peak(host) < MOST_MB


def test_what_one_user_may_not_queue_is_refused_with_the_reason(host: Host) -> None:
    """Limit, use and owner are named beside each refused file, and another's is taken in all the same."""
    host.write(SETTINGS, "limits:\n  pending_max: 1\n")
    host.systemctl("reload", DAEMON)
    for number in range(3):
        drop(host, FLOODER, f"more-{number}.json", "sleep 1")
    refused = host.path(f"{SPOOL}/{FLOODER}/rejected/more-2.json.error")
    text = eventually(lambda: refused.exists() and refused.read_text(), "it is not refused")
    assert re.search(rf"user {FLOODER} has \d+ tasks waiting, limits.pending_max is 1", text)
    assert probe(host, 1)


@pytest.mark.parametrize("exhaust", [SmallDisk.fill, SmallDisk.take_names])
def test_a_full_disk_loses_nothing(fresh_host: Host, exhaust: Callable[[SmallDisk], None]) -> None:
    """A run goes on to its end, what is dropped waits, the status says why, and all goes on when there is room."""
    host = fresh_host
    host.direct("mkdir", "--parents", STATE)
    host.direct("mount", "-t", "tmpfs", "-o", f"size={64 * MEGABYTE},nr_inodes=4000,mode=0711", "small", STATE)
    install(host)
    disk = SmallDisk(host.path(STATE))
    home = f"/home/{FLOODER}"
    drop(
        host,
        FLOODER,
        "long.json",
        f"touch {home}/began; until [ -e {home}/go ]; do sleep 0.05; done; touch {home}/over",
    )
    eventually(host.path(f"{home}/began").exists, "it does not start")
    exhaust(disk)
    drop(host, OTHER, "waits.json", f"touch /home/{OTHER}/ran")
    eventually(lambda: word(host).startswith("no room on the disk, nothing new is begun; "), "the status is silent")
    pid = host.main_pid(DAEMON)
    host.run("touch", f"{home}/go", user=FLOODER)
    eventually(host.path(f"{home}/over").exists, "the agent was disturbed")
    assert host.path(f"{SPOOL}/{OTHER}/waits.json").exists()
    disk.make_room()
    eventually(host.path(f"/home/{OTHER}/ran").exists, "what was dropped is lost")
    eventually(lambda: word(host) == "0 of 4 slots used, 0 waiting", "an end was lost")
    assert host.main_pid(DAEMON) == pid
    assert host.path(f"{STATE}/archive").exists()
