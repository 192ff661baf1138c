"""Boots a systemd and keeps it until its own standard input is closed: `python keeper.py [FROM:TO]...`.

Prints the manager's pid, as seen from outside, and the file with its last words. However its starter ends, the input
closes with him, and all of it is ended and removed. If this process is killed itself, the kernel ends the rest, and
the next keeper removes the empty directories. Needs nothing but the standard library.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "fairlead-booted-"
SCRIPT = Path(__file__).with_name("root.sh")
#: Mount, PID, UTS, IPC and network; the cgroups' own is made once these are joined.
SPACES = ("--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net")


def main(binds: list[str]) -> None:
    sweep()
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    lock = hold(made)
    state = made.rename(made.with_name(made.name[1:]))  # only now: whoever sweeps finds it held
    try:
        keep(state, binds)
    finally:
        remove(state)
        os.close(lock)


def keep(state: Path, binds: list[str]) -> None:
    """Boot, tell, wait for the end of the input, and end everything."""
    (state / "root").mkdir()
    (state / "console").touch()
    folders = [folder / state.name for folder in parents()]
    (state / "cgroups").write_text("".join(f"{folder}\n" for folder in folders))
    for folder in folders:
        make_cgroup(folder)
    layout = "unified" if len(folders) == 1 else "hybrid"
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *SPACES]
    command += ["sh", str(SCRIPT), str(state), layout, *map(str, folders), "--", *binds]
    with (
        open(state / "console", "ab") as console,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=console, text=True
        ) as manager,
    ):
        assert manager.stdout
        pid = manager.stdout.readline().strip()
        try:
            if pid:
                sys.stdout.write(f"{pid} {state / 'console'}\n")
                sys.stdout.flush()
                sys.stdin.read()
            else:
                sys.stderr.write((state / "console").read_text())
        finally:  # nobody may be there to hear of it any more
            if pid:
                os.kill(int(pid), signal.SIGKILL)  # and all of its name space with it, before `unshare` ends


# ---------------------------------------------------------------------- cgroups


def parents() -> list[Path]:
    """Where our cgroups go: below the caller's own in every hierarchy, but at the top of the unified one.

    Below a cgroup that has processes in it, that one gives no controllers.
    """
    mounts = list(hierarchies())
    if len(mounts) == 1:
        return [mounts[0][0]]
    return [place / own for place, own in mounts]


def hierarchies() -> Iterator[tuple[Path, str]]:
    """Each mounted hierarchy, with the caller's own path in it."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, root, place, *_ = before.split()
        kind, _, options = after.split()
        if kind == "cgroup2":
            yield Path(place), os.path.relpath(own[""], root)
        elif kind == "cgroup":
            names = next(names for names in own if names and set(names.split(",")) <= set(options.split(",")))
            yield Path(place), os.path.relpath(own[names], root)


def make_cgroup(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for name in (folder.parent / "cgroup.controllers").read_text().split():
            with contextlib.suppress(OSError):
                (folder.parent / "cgroup.subtree_control").write_text(f"+{name}")
    folder.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):  # in the first version nobody can join while these are empty
        if (folder / "cpuset.memory_migrate").exists():
            (folder / name).write_text((folder.parent / name).read_text())


# ---------------------------------------------------------------------- the end


def hold(state: Path) -> int:
    """Show that somebody lives here, for as long as we do."""
    fd = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep() -> None:
    """Remove what keepers that were killed left behind."""
    for state in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = hold(state)
            remove(state)
            os.close(lock)


def remove(state: Path) -> None:
    """End all that is left of it, and remove it."""
    made = state / "cgroups"
    for cgroup in map(Path, made.read_text().splitlines() if made.exists() else ()):
        deadline = time.monotonic() + 10
        while cgroup.exists() and time.monotonic() < deadline:
            remove_cgroups(cgroup)
    shutil.rmtree(state, ignore_errors=True)


def remove_cgroups(top: Path) -> None:
    """End who is still in them and remove them, the deepest first."""
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            for pid in map(int, Path(folder, "cgroup.procs").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.rmdir(folder)
    time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
