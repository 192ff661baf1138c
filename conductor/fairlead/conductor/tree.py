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

from fairlead.base.identity import ProcessId, is_alive, read_stat, start_of

#: Between two looks at processes that were told to stop or to end.
_PAUSE = 0.002


def children_of(pid: int) -> list[int]:
    """The direct children of a process, those of each of its threads."""
    found: list[int] = []
    for thread in _threads_of(pid):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/children", "rb") as file,
        ):
            found += map(int, file.read().split())
    return found


def _threads_of(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants_of(pid: int) -> list[int]:
    """Everything below a process, parents before their children."""
    found, todo = {pid: None}, [pid]
    while todo:
        # A pid may have passed to a stranger since it was listed: his parent is none of these.
        children = [child for child in children_of(todo.pop()) if child not in found and _parent_of(child) in found]
        found |= dict.fromkeys(children)
        todo += children
    return list(found)[1:]


def _parent_of(pid: int) -> int | None:
    stat = read_stat(pid)
    return stat.parent if stat else None


def identify(pids: Iterable[int]) -> list[ProcessId]:
    """The living among these, with their start times."""
    starts = ((pid, start_of(pid)) for pid in pids)
    return [ProcessId(pid, start) for pid, start in starts if start is not None]


def below(pid: int) -> list[ProcessId]:
    """Every living process below this one, parents before their children."""
    return identify(descendants_of(pid))


def send(processes: Iterable[ProcessId], number: int) -> None:
    """Send a signal to each that is still there."""
    for process in processes:
        send_safely(process, number)


def send_safely(process: ProcessId, number: int) -> bool:
    """Send a signal to this very process; False if it is gone, or not ours. A successor with its pid is never hit."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The descriptor is bound to one process by now: if that is ours, no other can be hit.
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def marked(marker: str, value: str) -> list[ProcessId]:
    """Every living process whose environment, as it was at its start, holds this marker."""
    wanted = f"{marker}={value}".encode()
    return identify(pid for pid in all_pids() if wanted in _environment(pid))


def marks(marker: str) -> dict[str, list[ProcessId]]:
    """Every living process that has this marker in its environment, by the marker's value."""
    start = f"{marker}=".encode()
    found: dict[str, list[ProcessId]] = {}
    for pid in all_pids():
        for value in (word[len(start) :] for word in _environment(pid) if word.startswith(start)):
            found.setdefault(value.decode("utf-8", "replace"), []).extend(identify([pid]))
    return {value: alive for value, alive in found.items() if alive}


def all_pids() -> list[int]:
    """Every process that can be seen from here."""
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
    found |= {child for process in found for child in below(process.pid)}
    return sorted(found)


def end_leftovers(marker: str, value: str, noted: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """End what is alive of a run whose supervisor is gone; returns what still is after so long.

    All of it is stopped before any of it is killed: with its parent dead and its environment cleared, a process that
    was started in between would never be found.
    """
    known = set(noted)
    deadline = time.monotonic() + seconds
    while (now := time.monotonic()) < deadline:
        found = _stop(marker, value, known, (now + deadline) / 2)
        if not found:
            return []
        known |= found
        send(found, signal.SIGKILL)
        wait_gone(found, deadline - time.monotonic())
    return leftovers(marker, value, known)


def _stop(marker: str, value: str, noted: set[ProcessId], deadline: float) -> set[ProcessId]:
    """Stop what is alive of a run, then what that had started until it stood still; returns all of it."""
    stopped: set[ProcessId] = set()
    while new := {*leftovers(marker, value, noted | stopped)} - stopped:
        send(new, signal.SIGSTOP)
        stopped |= new
        _wait_still(new, deadline)
        if time.monotonic() >= deadline:
            break
    return stopped


def _wait_still(processes: Iterable[ProcessId], deadline: float) -> None:
    """Wait until none of these does anything any more, or the time is up."""
    while time.monotonic() < deadline and not all(map(_stands_still, processes)):
        time.sleep(_PAUSE)


def _stands_still(process: ProcessId) -> bool:
    stat = read_stat(process.pid)
    return stat is None or stat.state in "TtZX" or not is_alive(process)


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until these have ended, at most so long; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        left = [process for process in left if is_alive(process)]
    return left
