"""The kernel's own protection against links, FIFOs and files of others: one setting for the whole machine.

Whoever changes it holds a lock meanwhile, and a process of its own puts it back, however the tests end.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAMES = tuple(f"/proc/sys/fs/protected_{what}" for what in ("hardlinks", "symlinks", "fifos", "regular"))
_KEEPER = """
import fcntl, sys
lock, value, *names = sys.argv[1:]
held = open(lock, "w")
fcntl.flock(held, fcntl.LOCK_EX)
before = {name: open(name).read() for name in names}
try:
    for name in names:
        open(name, "w").write(value)
    print("set", flush=True)
    sys.stdin.read()
finally:
    for name, old in before.items():
        open(name, "w").write(old)
"""
_LOCK = "/run/lock/fairlead-tests-protected"


@contextmanager
def settings(value: int) -> Iterator[None]:
    """Off or on, for as long as the block lasts."""
    if not all(os.access(name, os.W_OK) for name in NAMES) or os.statvfs(NAMES[0]).f_flag & os.ST_RDONLY:
        pytest.skip("fs.protected_* cannot be set here: /proc/sys is read-only")
    os.makedirs(os.path.dirname(_LOCK), exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _KEEPER, _LOCK, str(value), *NAMES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the tests: this one has something to put back
    ) as keeper:
        assert keeper.stdout
        assert keeper.stdout.readline() == "set\n"
        yield
        keeper.communicate()
