"""The supervisor: starts one agent, stays with it to the end, and writes that end down as its last act.

It is started with a run directory as its one argument; everything it needs is in there. It outlives daemon and
watchdog. Its steps, in order:

1. become the one inhabitant of the run directory (a flock for life), or leave;
2. make the directory durable and write `running`, durably: from here on the run counts as started;
3. start the agent in a session of its own;
4. until nothing of it is left: collect output, beat, enforce the time limit, hear a request to stop;
5. write the end, durably, and ring the watchdog.
"""

import ctypes
import errno
import glob
import math
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from msgspec import json

from fairlead.base.bell import ring
from fairlead.base.clock import Clock, SystemClock, iso
from fairlead.base.errors import FairleadError
from fairlead.base.files import read_plain, write_all
from fairlead.base.identity import this_process
from fairlead.conductor import launch as launching
from fairlead.conductor import rundir, tree
from fairlead.conductor.launch import Launch, read_launch
from fairlead.conductor.meta import Heartbeat, Meta, Supervisor, read_meta, write_meta
from fairlead.conductor.output import CappedLog, read_tail
from fairlead.queue.states import Status

_PR_SET_CHILD_SUBREAPER = 36
#: What the agent leaves behind is asked to go, then made to, after at most this long.
SWEEP_GRACE = 2.0
#: Between two looks at processes that were told to end.
SWEEP_PAUSE = 0.02
#: Between two tries to write the end while the disk refuses.
WRITE_PAUSE = 1.0
_LOG_TAIL = 2000
_PROGRESS = 500

_libc = ctypes.CDLL(None, use_errno=True)


def supervise(run_dir: str) -> None:
    """Look after the run in this directory, if it is still to be looked after."""
    become_subreaper()
    with rundir.only_inhabitant(run_dir) as alone:
        if not alone:
            return
        meta = read_meta(run_dir)
        if meta.status == Status.CLAIMED:
            Run(run_dir, meta, read_launch(run_dir), SystemClock()).play()


def become_subreaper() -> None:
    """Let orphans of this process's children come back to it instead of to init."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class Run:
    """One attempt, from `running` to its end."""

    def __init__(self, run_dir: str, meta: Meta, launch: Launch, clock: Clock) -> None:
        self.dir = run_dir
        self.meta = meta
        self.launch = launch
        self.clock = clock
        self.poll = select.poll()
        self.pipes: dict[int, CappedLog] = {}
        self.agent: int | None = None
        self.agent_status: int | None = None
        #: Why the run is being ended from outside: timeout, cancelled, interrupted.
        self.stopping: tuple[str, str] | None = None
        self.next_beat = 0.0
        self.deadline = math.inf
        self.kill_at = math.inf
        self.wakeup = -1

    def play(self) -> None:
        """All steps, in order."""
        self.listen_to_signals()
        self.announce()
        try:
            self.start_agent()
        except OSError as error:
            self.end(Status.FAILED, "not_started", error=_start_error(self.launch, error))
            return
        self.attend()
        self.conclude()

    # ------------------------------------------------------------------ beginning

    def listen_to_signals(self) -> None:
        """Signals only wake the loop: a child ended, or somebody asks to stop."""
        self.wakeup, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self.asked_to_stop = False
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.poll.register(self.wakeup, select.POLLIN)

    def _on_stop(self, *_: object) -> None:
        self.asked_to_stop = True

    def announce(self) -> None:
        """From here on the run counts as started, even if the power goes."""
        self.meta.status = Status.RUNNING
        self.meta.supervisor = Supervisor(*this_process())
        self.meta.started_at = self.clock.wall_ms()
        rundir.make_durable(self.dir)
        write_meta(self.dir, self.meta, durable=True)

    def start_agent(self) -> None:
        """Start the agent in its own session, with pipes for its output."""
        launch = self.launch
        os.chdir(launch.cwd)
        stdin = os.open(launch.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        out, err = self._pipe(rundir.STDOUT), self._pipe(rundir.STDERR)
        try:
            self.agent = os.posix_spawn(
                launch.argv[0],
                launch.argv,
                launch.env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((stdin, out, err))],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD],
            )
        finally:
            for fd in (stdin, out, err):
                os.close(fd)
        self.meta.pid = self.agent
        now = self.clock.boot()
        self.deadline = now + launch.timeout if launch.timeout else math.inf
        self.next_beat = now + launch.heartbeat
        ring(launch.bells, "watchdog", f"started {os.path.basename(self.dir)}")

    def _pipe(self, name: str) -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        self.pipes[reader] = CappedLog(os.path.join(self.dir, name), self.launch.output_bytes)
        self.poll.register(reader, select.POLLIN | select.POLLHUP)
        return writer

    # ------------------------------------------------------------------ while it runs

    def attend(self) -> None:
        """Stay until nothing of the run is left."""
        while not self.reap():
            now = self.clock.boot()
            self.hear_stop()
            self.enforce_limits(now)
            self.beat(now)
            self.wait(now)

    def reap(self) -> bool:
        """Collect ended processes; True once there are no children at all: the tree is empty."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.agent:
                    self.agent_status = status
        except ChildProcessError:
            return True
        if self.agent_status is not None and self.kill_at == math.inf:
            self.ask_to_end(min(self.launch.grace, SWEEP_GRACE), signal.SIGTERM)
        return False

    def hear_stop(self) -> None:
        """Somebody signalled: with a cancel note it is a person's wish, without it an interruption."""
        if not self.asked_to_stop or self.stopping:
            return
        by = read_cancel(self.dir)
        if by is None:
            self.stop("interrupted", "the supervisor was asked to stop by a signal")
        else:
            self.stop("cancelled", f"cancelled by {by}")

    def enforce_limits(self, now: float) -> None:
        """Ask what is over its time to stop; end all of what was asked and did not."""
        if now >= self.deadline and not self.stopping:
            self.stop("timeout", f"still running after {self.launch.timeout:g} s, its time limit")
        if now >= self.kill_at:
            tree.send(tree.descendants_of(os.getpid()), signal.SIGKILL)

    def stop(self, reason: str, sentence: str) -> None:
        """Begin to end the run from outside."""
        self.stopping = (reason, sentence)
        self.ask_to_end(self.launch.grace, getattr(signal, f"SIG{self.launch.stop_signal}"))

    def ask_to_end(self, grace: float, number: int) -> None:
        """Signal everything of the run, and set the time after which it is killed."""
        tree.send(tree.descendants_of(os.getpid()), number)
        self.kill_at = min(self.kill_at, self.clock.boot() + grace)

    def beat(self, now: float) -> None:
        """A sign of life, with who is there and how far they are. Needs no fsync: it is made again."""
        if now < self.next_beat:
            return
        self.next_beat = now + self.launch.heartbeat
        meta = self.meta
        meta.heartbeat = Heartbeat(meta.heartbeat.seq + 1, iso(self.clock.wall_ms()) or "")
        meta.processes = list(tree.identify(tree.descendants_of(os.getpid())))
        meta.progress = self.read_progress()
        # A full disk must not end the run: the next beat tries again.
        with suppress(OSError):
            write_meta(self.dir, meta, durable=False)

    def read_progress(self) -> str:
        """The last line of what the agent says about its progress."""
        text = read_tail(os.path.join(self.dir, launching.PROGRESS), _PROGRESS).decode("utf-8", "replace").strip()
        return text.rsplit("\n", 1)[-1]

    def wait(self, now: float) -> None:
        """Sleep until output, a signal, or the next thing to do."""
        if now >= self.kill_at:
            pause = SWEEP_PAUSE
        else:
            pause = max(0.0, min(self.next_beat, self.kill_at, self.deadline if not self.stopping else math.inf) - now)
        for fd, _ in self.poll.poll(math.ceil(pause * 1000)):
            if fd == self.wakeup:
                os.read(fd, 4096)
            else:
                self.collect(fd)

    def collect(self, fd: int) -> None:
        """Move what the agent wrote into its log."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if data:
            # A full disk costs the log, not the run.
            with suppress(OSError):
                self.pipes[fd].write(data)
            return
        self.poll.unregister(fd)
        os.close(fd)
        self._close_log(self.pipes.pop(fd))

    # ------------------------------------------------------------------ the end

    def conclude(self) -> None:
        """Everything of the run has ended: say how."""
        self.drain()
        if self.agent_status is None:
            raise AssertionError("the tree is empty and the agent was not seen to end")
        code = os.waitstatus_to_exitcode(self.agent_status)
        self.meta.exit_code = code if code >= 0 else None
        self.meta.signal = signal.Signals(-code).name if code < 0 else None
        self.meta.artifacts = self.find_artifacts()
        problem = self.take_result()
        if self.stopping:
            reason, sentence = self.stopping
            status = Status.CANCELLED if reason == "cancelled" else Status.FAILED
            self.end(status, reason, error=sentence)
        elif code == 0:
            self.end(Status.COMPLETED, "exit", error=problem)
        elif code > 0:
            self.end(Status.FAILED, "exit", error=f"the agent ended with exit code {code}")
        else:
            self.end(Status.FAILED, "signal", error=f"the agent was ended by {self.meta.signal}")

    def drain(self) -> None:
        """Take what is left in the pipes: all writers are gone."""
        for fd in list(self.pipes):
            while fd in self.pipes:
                self.collect(fd)

    def _close_log(self, log: CappedLog) -> None:
        with suppress(OSError):
            log.close()

    def take_result(self) -> str:
        """Read the agent's result file; returns a sentence if there is one that cannot be used."""
        path = os.path.join(self.dir, launching.RESULT)
        try:
            self.meta.result = json.decode(read_plain(path, self.launch.result_bytes))
        except FileNotFoundError:
            return ""
        except (FairleadError, OSError, ValueError) as error:
            return f"the agent's result file was left aside: {error}"
        self.meta.cost = _cost(self.meta.result)
        return ""

    def find_artifacts(self) -> list[str]:
        """The files below the working directory that the task's patterns name."""
        found: set[str] = set()
        for pattern in self.launch.artifacts:
            for path in glob.iglob(pattern, root_dir=self.launch.cwd, recursive=True, include_hidden=True):
                if len(found) >= self.launch.artifacts_max:
                    return sorted(found)
                if os.path.isfile(os.path.join(self.launch.cwd, path)):
                    found.add(path)
        return sorted(found)

    def end(self, status: Status, reason: str, *, error: str = "") -> None:
        """The last act: write the end durably, then tell the watchdog."""
        meta = self.meta
        meta.status, meta.reason, meta.error = status, reason, error
        meta.finished_at = self.clock.wall_ms()
        meta.held = self.clock.boot() - meta.claimed_boot
        meta.processes = []
        meta.progress = self.read_progress()
        if status is not Status.COMPLETED:
            meta.log_tail = self.log_tail()
        self.write_end()
        ring(self.launch.bells, "watchdog", f"ended {os.path.basename(self.dir)}")

    def log_tail(self) -> str:
        """The last words: of stderr, or of stdout if stderr is silent."""
        for name in (rundir.STDERR, rundir.STDOUT):
            if data := read_tail(os.path.join(self.dir, name), _LOG_TAIL):
                return data.decode("utf-8", "replace")
        return ""

    def write_end(self) -> None:
        """A result is not lost to a full disk: stay, with the lock held, until it can be written."""
        while True:
            try:
                write_meta(self.dir, self.meta, durable=True)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return  # the directory itself was taken away: there is nobody to tell
                time.sleep(WRITE_PAUSE)
            else:
                return


def read_cancel(run_dir: str) -> str | None:
    """Who asked for this run to be cancelled, if anybody did."""
    try:
        note = json.decode(read_plain(os.path.join(run_dir, rundir.CANCEL), 65536))
        return str(note["by"])
    except FileNotFoundError:
        return None
    except (FairleadError, ValueError, KeyError, TypeError):
        return "somebody"  # the note is there, whatever it says


def _cost(result: Any) -> float | None:  # noqa: ANN401 - whatever the agent wrote
    cost = result.get("cost") if isinstance(result, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < math.inf:
        return None
    return float(cost)


def _start_error(launch: Launch, error: OSError) -> str:
    if error.errno == errno.E2BIG:
        return "the prompt is too long for a command line: let the agent read {prompt_file} or stdin."
    return f"the agent could not be started in {launch.cwd}: {launch.argv[0]}: {error.strerror}"


def main() -> None:
    """Entry point for launchers that start a fresh interpreter."""
    run_guarded(sys.argv[1])


def run_guarded(run_dir: str) -> None:
    """Supervise, and leave a trace in the run directory if that goes wrong."""
    try:
        supervise(run_dir)
    except BaseException:  # noqa: BLE001 - the trace is all that is left; the watchdog sees the death
        with suppress(OSError):
            fd = os.open(os.path.join(run_dir, "supervisor.err"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            write_all(fd, traceback.format_exc().encode())
        os._exit(1)


if __name__ == "__main__":
    main()
