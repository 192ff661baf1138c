"""Agents that misbehave. Started as `python -I -S agents.py NAME ARGUMENT…`, and they import next to nothing.

Every process of them that must not outlive its run writes the time into a file as long as it lives: whatever time
is in there when all is over must not be later than the end that was written down.
"""

import os
import signal
import sys
import time

#: Nobody here lives for ever, should a test fail to end it: seconds on the clock that all share.
END = time.monotonic() + 120


def witness(path: str) -> None:
    """Write the time down, until killed."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    while time.monotonic() < END:
        os.pwrite(fd, f"{time.time_ns() // 1_000_000:020}\n".encode(), 0)
        time.sleep(0.0005)


def deaf() -> None:
    """Hear no polite request."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def daemonise() -> bool:
    """Leave parent and session behind, twice; True in the process that is left."""
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    os.setsid()
    return True


def bare(name: str, *arguments: str) -> None:
    """Go on as another of these agents, without any environment."""
    command = [sys.executable, "-I", "-S", __file__, name, *arguments]
    os.execve(sys.executable, command, {})  # noqa: S606 - no shell is the point


def leave_daemon(path: str, seconds: str = "0") -> None:
    """Leave a deaf daemon behind, and go; after a while if so told."""
    if daemonise():
        deaf()
        witness(path)
    _await(path)
    time.sleep(float(seconds))


def leave_bare_daemon(path: str, seconds: str = "0") -> None:
    """Leave a daemon behind that bears no marker."""
    if daemonise():
        bare("witness", path)
    _await(path)
    time.sleep(float(seconds))


def leave_polite(path: str) -> None:
    """Leave a child behind that goes when it is asked to, and says so."""
    if os.fork() == 0:
        asked: list[bool] = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
        note(path, "ready")
        while not asked:
            time.sleep(0.001)
        note(path, "asked")
        os._exit(0)
    _await(path)


def refork(path: str, chains: str = "1") -> None:
    """Leave chains of processes behind: each starts its successor in a new session and ends at once."""
    deaf()
    for _ in range(int(chains)):
        if os.fork() == 0:
            _chain(path)
    _await(path)


def _chain(path: str) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    while time.monotonic() < END:
        os.pwrite(fd, f"{time.time_ns() // 1_000_000:020}\n".encode(), 0)
        if os.fork():
            os._exit(0)
        os.setsid()


def respawn(path: str) -> None:
    """A deaf keeper that starts a new worker whenever one ends."""
    deaf()
    while time.monotonic() < END:
        worker = os.fork()
        if worker == 0:
            witness(path)
        os.waitpid(worker, 0)


def keep_bare(path: str) -> None:
    """A deaf keeper that starts workers without any environment, one after the other, as fast as it can."""
    deaf()
    while time.monotonic() < END:
        if os.fork() == 0:
            bare("write_once", path)
        time.sleep(0.0005)


def write_once(path: str) -> None:
    """Write the time down, and stay."""
    note(path, "here")
    time.sleep(120)


def start_in_thread() -> None:
    """Start a child in another thread than the first."""
    import threading  # noqa: PLC0415

    def work() -> None:
        os.posix_spawnp("sleep", ["sleep", "120"], {})
        time.sleep(120)

    threading.Thread(target=work).start()
    time.sleep(120)


def headless(path: str) -> None:
    """Leave a process behind whose first thread has ended while another goes on."""
    import ctypes  # noqa: PLC0415 - the other agents should start quickly
    import threading  # noqa: PLC0415

    if os.fork() == 0:
        deaf()
        threading.Thread(target=witness, args=(path,)).start()
        _await(path)
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
    _await(path)


def pass_pid_on(code: str) -> None:
    """End with this code, and leave an orphan behind that gets the same pid later and ends with another."""
    deaf()
    agent = os.getpid()
    if os.fork():
        os._exit(int(code))
    os.setsid()  # a pid is taken as long as a session bears it
    while os.path.exists(f"/proc/{agent}"):
        time.sleep(0.001)
    while not _fork_as(agent):
        pass


def _fork_as(pid: int) -> bool:
    """Fork a process with that pid, if nobody else is faster; it ends well, some time after its parent."""
    parent = os.getpid()
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
        file.write(str(pid - 1))
    child = os.fork()
    if child == 0:
        while os.getpid() == pid and os.getppid() == parent:
            time.sleep(0.001)
        note("pids", str(os.getpid()))
        os._exit(0)
    if child != pid:
        os.waitpid(child, 0)
    return child == pid


def lend_output(path: str) -> None:
    """Hand standard output to whoever listens at a socket, who has nothing to do with the run, and go."""
    import socket  # noqa: PLC0415

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sender:
        sender.connect(path)
        socket.send_fds(sender, [b"here"], [1])
        sender.recv(1)
    os.write(1, b"last words\n")


def name_strangely() -> None:
    """Leave files with strange names."""
    for name in (b"not\xfftext", b"new\nline", "ünï".encode()):
        os.close(os.open(name, os.O_CREAT))


def stop_slowly(path: str, code: str) -> None:
    """When asked to stop, say so and end in good order."""

    def stop(number: int, _: object) -> None:
        note(path, f"heard {signal.Signals(number).name}")
        os._exit(int(code))

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    note(path, "ready")
    time.sleep(120)


def note(path: str, line: str) -> None:
    """Add a line to a file."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def _await(path: str) -> None:
    while time.monotonic() < END and not (os.path.exists(path) and os.path.getsize(path)):
        time.sleep(0.001)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
