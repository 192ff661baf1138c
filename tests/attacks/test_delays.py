"""Keeping services waiting: whatever a user can hold up, he holds up for himself alone."""

import time

from tests.attacks.siege import Siege
from tests.support.booted.host import PYTHON

#: What alice may have to wait for a task that does nothing; the delays that are tried are tens of seconds.
SOON = 5.0
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


def test_a_program_that_cannot_be_opened_delays_nobody_else(siege: Siege) -> None:
    """Systemd cannot execute it for most of a minute; everybody else's units start as ever."""
    siege.sh("mallory", "cp /bin/true held; chmod 0755 held")
    with siege.start("mallory", PYTHON, "-c", LEASE, "/home/mallory/held") as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        title = siege.task("mallory", "", command=["/home/mallory/held"])
        siege.starting("mallory")
        for _ in range(3):
            alice_is_served_soon(siege)
        holder.communicate()
    assert siege.record(title)["status"] == "completed"
