"""Process trees: finding everything of a run, and ending all of it.

A supervisor is a child subreaper: whatever its agent leaves behind comes back to it, so "no children left" is
proof that the tree is empty. Without the supervisor, an environment marker and the processes it had noted
find the rest.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from fairlead.base.identity import ProcessId, is_alive, read_stat


def children_of(pid: int) -> list[int]:
    """The direct children of a process, those of each of its threads."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


def descendants_of(pid: int) -> list[int]:
    """Everything below a process."""
    found, todo = [], [pid]
    while todo:
        children = children_of(todo.pop())
        found += children
        todo += children
    return found


def identify(pids: Iterable[int]) -> list[ProcessId]:
    """The living among these, with their start times."""
    stats = ((pid, read_stat(pid)) for pid in pids)
    return [ProcessId(pid, stat.start) for pid, stat in stats if stat and stat.state not in "ZX"]


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each; those that are gone, or are not ours, are passed over."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def send_safely(process: ProcessId, number: int) -> bool:
    """Send a signal to this very process; False if it is gone. A successor with its pid is never hit."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def marked(marker: str, value: str) -> list[ProcessId]:
    """Every living process whose environment, as it was at its start, holds this marker."""
    wanted = f"{marker}={value}".encode()
    return identify(pid for pid in _all_pids() if wanted in _environment(pid))


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # gone, or another user's: such a process is not ours to end


def leftovers(marker: str, value: str, noted: Iterable[ProcessId]) -> list[ProcessId]:
    """What is alive of a run whose supervisor is gone: marked processes, noted ones, and all below them."""
    found = {*marked(marker, value), *(process for process in noted if is_alive(process))}
    below = identify({pid for process in found for pid in descendants_of(process.pid)})
    return sorted(found | set(below))


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until these have ended, at most so long; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.005)
        left = [process for process in left if is_alive(process)]
    return left
