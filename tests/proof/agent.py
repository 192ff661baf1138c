"""The witness's agent: notes its start and its end, and catches a second start or an overlap in the act.

It is started as `python -I -S agent.py WITNESS NAME USER SECONDS CODE LINGER` and imports next to nothing, so that it
starts in a few milliseconds. What it proves with:

- a file that only one start of a task can create (O_EXCL): whoever finds it there is the second start;
- a flock per user for its whole life, which the kernel frees at its death: whoever does not get it overlaps;
- times by CLOCK_BOOTTIME, in notes of one write each, at the end of one file for all.

With LINGER it leaves a grandchild behind, in a session of its own and deaf to TERM, that has the user's flock too: the
next task of that user finds it taken unless all of this run was gone before.
"""

import fcntl
import os
import signal
import sys
import time


def main() -> None:
    """Take part in one run."""
    witness, name, user, seconds, code, linger = sys.argv[1:]
    notes = os.open(f"{witness}/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    lock, held_by = take_lock(f"{witness}/locks/{user}", name)
    first = leave_mark(f"{witness}/marks/{name}")
    parent = os.getppid()
    note(
        notes,
        event="start",
        name=name,
        user=user,
        held_by=held_by,
        first=int(first),
        task=os.environ.get("FAIRLEAD_TASK_ID", ""),
        attempt=int(os.environ.get("FAIRLEAD_ATTEMPT", "0")),
        parent=parent,
        parent_start=started_at(parent),
    )
    if float(linger):
        leave_behind(notes, name, float(linger))
    time.sleep(float(seconds))
    note(notes, event="end", name=name, code=int(code))
    os.close(lock)
    os._exit(int(code))


def take_lock(path: str, name: str) -> tuple[int, str]:
    """Hold the user's lock for life; else say who has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return lock, os.pread(lock, 200, 0).decode() or "somebody"
    os.pwrite(lock, f"{name} {os.getpid()}".ljust(60).encode(), 0)
    return lock, ""


def leave_mark(path: str) -> bool:
    """Whether this is the task's first start."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def leave_behind(notes: int, name: str, seconds: float) -> None:
    """Double-fork a process that outlives the agent, if it is let."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    time.sleep(seconds)
    note(notes, event="lingered", name=name)
    os._exit(0)


def note(notes: int, **facts: str | int) -> None:
    """Write one line of JSON, with who and when."""
    pid = os.getpid()
    facts |= {"pid": pid, "pid_start": started_at(pid), "at": time.clock_gettime_ns(time.CLOCK_BOOTTIME)}
    words = (f'"{key}": {value}' if isinstance(value, int) else f'"{key}": "{value}"' for key, value in facts.items())
    os.write(notes, ("{" + ", ".join(words) + "}\n").encode())


def started_at(pid: int) -> int:
    """A process's start in clock ticks; with its pid it names that very process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


if __name__ == "__main__":
    main()
