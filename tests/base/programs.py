"""What the tests of this folder run in processes of their own."""

import errno
import fcntl
import os
import signal
import sys
from itertools import count

from tests.support.full_disk import room_for
from tests.support.kernel_errors import refuse
from tests.support.programs import main, say, together

from fairlead.base.bell import Listener, ring, ring_all
from fairlead.base.files import (
    SyncFailedError,
    create_complete,
    make_directory,
    sync_directory,
    sync_file,
    sync_file_system,
    write_all,
    write_atomically,
    write_durably,
)
from fairlead.base.identity import ProcessId, is_alive, start_of
from fairlead.base.ids import new_id
from fairlead.base.logs import open_log
from fairlead.base.service import AlreadyRunningError, Single, Waiter

WRITERS = {"write_atomically": write_atomically, "write_durably": write_durably}


def rewrite(how: str, path: str) -> None:
    """Replace the file with ever other contents of one letter each, until killed."""
    for number in count():
        WRITERS[how](path, bytes([65 + number % 26]) * (100_000 + number % 7))
        if number == 0:
            say("ready")


def create(directory: str, processes: str, names: str) -> None:
    """Let processes compete for names; each prints the names that it got."""

    def compete(number: int) -> None:
        for name in range(int(names)):
            if create_complete(os.path.join(directory, str(name)), f"{number} ".encode() * 10_000):
                say(f"{name} {number}")

    together(int(processes), compete)


def make(directory: str, processes: str) -> None:
    """Let processes make the same directories."""

    def work(_: int) -> None:
        for number in range(50):
            make_directory(f"{directory}/{number}/a/b")

    together(int(processes), work)


def write_with_failing(call: str, path: str) -> None:
    """Write durably while the kernel refuses a call."""
    refuse(call, errno.EIO)
    try:
        write_durably(path, b"new")
    except OSError as error:
        say(errno.errorcode[error.errno or 0])


def sync_failing(kind: str, code: str, path: str) -> None:
    """Sync a file, a directory, or a whole file system, on a disk that fails."""
    sync = {"file": sync_file, "directory": sync_directory, "file system": sync_file_system}[kind]
    refuse("syncfs" if kind == "file system" else "fsync", int(code))
    try:
        sync(path)
    except SyncFailedError as error:
        say(f"stop: {error}")
    except OSError as error:
        say(f"{errno.errorcode[error.errno or 0]}")


def write_too_much(path: str) -> None:
    """Write more than fits: the first call takes a part, the second one fails."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        with room_for(1000):
            write_all(fd, b"x" * 5000)
    except OSError as error:
        say(errno.errorcode[error.errno or 0])


def die_writing_then_write(path: str) -> None:
    """Be killed in the middle of a write, then write with the same pid; for a pid namespace of its own."""
    for size in (5000, 500):
        _set_next_pid(100)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            with room_for(1000):
                write_atomically(path, b"x" * size)
            os._exit(0)
        say(f"{pid} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


def reuse_pid() -> None:
    """Give a process's pid to a successor; for a pid namespace of its own."""
    first = _sleeper()
    say(f"{first.pid} {is_alive(first)}")
    _end(first)
    second = _sleeper()
    while second.start == first.start:  # start times have a resolution of ten milliseconds
        _end(second)
        second = _sleeper()
    say(f"{second.pid} {is_alive(second)} {is_alive(first)}")
    _end(second)


def _sleeper() -> ProcessId:
    _set_next_pid(100)
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return ProcessId(pid, start_of(pid) or 0)


def _end(process: ProcessId) -> None:
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)


def _set_next_pid(pid: int) -> None:
    with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
        file.write(str(pid - 1))


def hold_lease(path: str) -> None:
    """Hold a write lease on a file until the input is closed."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(path, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    say("ready")
    sys.stdin.read()


def be_called(name: str) -> None:
    """Take a name that the kernel shows in /proc until the input is closed."""
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)
    say("ready")
    sys.stdin.read()


def listen(directory: str, name: str) -> None:
    """Listen to a bell until the input is closed."""
    listener = Listener(directory, name)
    say("ready")
    sys.stdin.read()
    listener.close()


def restart_while_ringing(directory: str, restarts: str) -> None:
    """Count how often a listener that took a dead one's place is deaf, while others clear dead bells away."""
    ringers = [_ringer(directory) for _ in range(2)]
    deaf = 0
    try:
        for _ in range(int(restarts)):
            listener = Listener(directory, "daemon")
            deaf += not ring(directory, "daemon")
            os.close(listener.fileno())  # as the kernel does at its death
            listener._socket.detach()
    finally:
        for pid in ringers:
            os.kill(pid, signal.SIGKILL)
    say(deaf)


def _ringer(directory: str) -> int:
    pid = os.fork()
    while pid == 0:
        ring_all(directory, "all")
    return pid


def make_ids(processes: str, each: str) -> None:
    """Let processes make ids of the same millisecond."""
    together(int(processes), lambda _: say("\n".join(new_id(1_790_000_000_000) for _ in range(int(each)))))


def write_log(path: str, processes: str, lines: str, max_bytes: str, keep: str) -> None:
    """Let processes log; lines have lengths from short to several pages."""

    def work(number: int) -> None:
        log = open_log(path, f"p{number}", max_bytes=int(max_bytes), keep=int(keep))
        for line in range(int(lines)):
            log.info("line", number=line, filler="x" * (line * 37 % 9000))

    together(int(processes), work)


def log_after_fork(path: str) -> None:
    """Log before and after a fork, and print both pids."""
    log = open_log(path, "forker")
    log.info("parent")
    pid = os.fork()
    if pid == 0:
        log.info("child")
        os._exit(0)
    os.waitpid(pid, 0)
    say(f"{os.getpid()} {pid}")


def log_too_much(path: str) -> None:
    """Log on a disk that has no room for the whole line."""
    with room_for(1000):
        open_log(path, "full").error("too long", filler="x" * 2000)


def be_single(path: str) -> None:
    """Be the only one until the input is closed."""
    single = Single(path, "The tester")
    try:
        single.take(patience=0.0)
    except AlreadyRunningError as error:
        say(error)
        return
    say("ready")
    sys.stdin.read()


def wait_for_signals(bells: str) -> None:
    """Wait, and say what came, until asked to stop."""
    waiter = Waiter(bells, "tester")
    waiter.listen_to_signals()
    say("ready")
    while not waiter.asked_to_stop:
        for word in waiter.wait(60.0):
            say(f"rung: {word}")
        if waiter.asked_to_reload:
            waiter.asked_to_reload = False
            say("asked to reload")
    say("asked to stop")
    waiter.close()


if __name__ == "__main__":
    main(globals())
