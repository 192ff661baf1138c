"""One attempt as its supervisor plays it: from `running` to its end, whatever the agent does."""

import errno
import math
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

from msgspec import json

from fairlead.base.bell import ring
from fairlead.base.clock import Clock, iso
from fairlead.base.errors import FairleadError, is_machine_trouble
from fairlead.base.files import read_plain, sync_directory
from fairlead.base.identity import this_process
from fairlead.conductor import rundir
from fairlead.conductor.agent import OUT_OF_MEMORY, Agent, Child, End
from fairlead.conductor.clerked import ClerkedDropOff
from fairlead.conductor.dropoff import DropOff, OwnDropOff
from fairlead.conductor.in_unit import UnitAgent, units_by
from fairlead.conductor.meta import (
    NO_ROOM,
    VOID,
    CorruptMetaError,
    Heartbeat,
    Meta,
    Supervisor,
    read_meta,
    write_meta,
)
from fairlead.conductor.orders import Launch
from fairlead.conductor.output import STDERR, STDOUT, Output, last_words
from fairlead.conductor.place import Place
from fairlead.conductor.porter import Porter
from fairlead.conductor.prctl import lay_down, take_up
from fairlead.conductor.results import UnusableResultError, cost_of
from fairlead.queue.states import Status

#: What the agent leaves behind is asked to go, then made to, after at most this long.
SWEEP_GRACE = 2.0
#: Between two looks at processes that were told to end.
SWEEP_PAUSE = 0.02
#: The first beat comes early: it names processes that nothing else would find if the supervisor died.
FIRST_BEAT = 0.2
#: A run that ends sooner need not tell that it has started: its end says so.
SHORT = 0.02
#: After a run that ends sooner, within a heartbeat, its supervisor may take another: a lease is longer than that.
BRIEF = 1.0
#: The longest sleep, whatever the settings say: the kernel counts milliseconds in 32 bits.
LONGEST_WAIT = 3600.0


class Run:
    """One attempt, from `running` to its end."""

    def __init__(
        self, run_dir: str, meta: Meta, launch: Launch, clock: Clock, no_other: Callable[[], None] = lambda: None
    ) -> None:
        self.dir = run_dir
        self.place = Place(run_dir, self.settle_in)
        self.meta = meta
        self.launch = launch
        self.clock = clock
        #: To be called once this run is not brief any more.
        self.no_other = no_other
        self.poll = select.poll()
        self.output = Output(run_dir, launch.output_bytes, self.poll)
        self.agent, self.drop_off = hands_for(launch, run_dir, meta.user, self.poll)
        #: The agent has been started.
        self.has_agent = False
        #: Why the run is being ended from outside: timeout, cancelled, interrupted.
        self.stopping: tuple[str, str] | None = None
        self.next_beat = 0.0
        self.tell_at = math.inf
        self.deadline = math.inf
        self.kill_at = math.inf
        self.wakeup = self.wakeup_writer = -1
        self.asked_to_look = False
        self.asked_to_stop = False

    def play(self) -> None:
        """All steps, in order."""
        self.listen_to_signals()
        self.announce()
        try:
            self.start_agent()
        except (OSError, ValueError) as error:
            self.give_up(error)
            return
        self.attend()
        self.conclude()

    # ------------------------------------------------------------------ beginning

    def listen_to_signals(self) -> None:
        """Signals only wake the loop: a child ended, or somebody asks to stop."""
        self.wakeup, self.wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(rundir.LOOK_FOR_NOTE, self._on_note)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.poll.register(self.wakeup, select.POLLIN)

    def _on_note(self, *_: object) -> None:
        self.asked_to_look = True

    def _on_stop(self, *_: object) -> None:
        self.asked_to_stop = self.asked_to_look = True

    def announce(self) -> None:
        """From here on the run counts as started, even if the power goes."""
        take_up(self.meta.lock_id)
        self.meta.status = Status.RUNNING
        used = os.times()
        self.meta.supervisor = Supervisor(*this_process(), used.children_user + used.children_system)
        self.meta.started_at, self.meta.started_boot = self.clock.wall_ms(), self.clock.boot()
        rundir.announce(self.dir, self.meta)

    def start_agent(self) -> None:
        """Start the agent, with pipes for its output."""
        launch, stdin = self.drop_off.prepare()
        try:
            with self.output.into(STDOUT) as out, self.output.into(STDERR) as err:
                self.agent.start(launch, (stdin, out, err))
        finally:
            os.close(stdin)
        self.has_agent = True
        self.meta.pid = self.agent.pid
        now = self.clock.boot()
        self.deadline = now + launch.timeout if launch.timeout else math.inf
        self.next_beat = now + min(FIRST_BEAT, launch.heartbeat)
        self.tell_at = now + SHORT

    def give_up(self, error: OSError | ValueError) -> None:
        """No agent could be started: the task's fault, or the machine's, and then it is to be tried again."""
        self.output.drain()
        sentence = _start_error(self.launch, error)
        if not is_machine_trouble(error):
            self.end(Status.FAILED, "not_started", error=sentence)
            return
        self.meta.status, self.meta.reason, self.meta.error = VOID, NO_ROOM, sentence
        self.place.persist(lambda: write_meta(self.dir, self.meta, synced=False))
        self.tell("ended")

    # ------------------------------------------------------------------ while it runs

    def attend(self) -> None:
        """Stay until nothing of the run is left."""
        while not self.reap():
            now = self.clock.boot()
            self.hear_stop()
            self.enforce_limits(now)
            self.tell_start(now)
            self.beat(now)
            self.wait(now)

    def reap(self) -> bool:
        """Take note of what has ended; True once nothing of the run is left."""
        if self.agent.look():
            return True
        if self.agent.end is not None and self.kill_at == math.inf:
            self.ask_to_end(min(self.launch.grace, SWEEP_GRACE), signal.SIGTERM)
        return False

    def hear_stop(self) -> None:
        """Somebody signalled: with a cancel note it is a person's wish, without it TERM is an interruption."""
        if not self.asked_to_look or self.is_over:
            return
        self.asked_to_look = False
        by = read_cancel(self.dir)
        if by is not None:
            self.stop("cancelled", f"cancelled by {by}")
        elif self.asked_to_stop:
            self.stop("interrupted", "the supervisor was asked to stop by a signal")

    def enforce_limits(self, now: float) -> None:
        """Ask what is over its time to stop; end all of what was asked and did not."""
        if now >= self.deadline and not self.is_over:
            self.stop("timeout", f"still running after {self.launch.timeout:g} s, its time limit")
        if now >= self.kill_at:
            # Again and again: each death wakes us, and whoever was born since the last look is among the next.
            self.agent.send(signal.SIGKILL)

    @property
    def is_over(self) -> bool:
        """Whether it is settled how the run ends: by its agent's own end, or by a stop that has begun."""
        return self.agent.end is not None or self.stopping is not None

    def stop(self, reason: str, sentence: str) -> None:
        """Begin to end the run from outside."""
        self.stopping = (reason, sentence)
        self.ask_to_end(self.launch.grace, getattr(signal, f"SIG{self.launch.stop_signal}"))

    def ask_to_end(self, grace: float, number: int) -> None:
        """Signal everything of the run, and set the time after which it is killed."""
        self.agent.send(number)
        self.kill_at = min(self.kill_at, self.clock.boot() + grace)

    def tell_start(self, now: float) -> None:
        """Let the start be recorded, once it has proven not to be a short run's."""
        if now >= self.tell_at:
            self.tell_at = math.inf
            self.place.keep()
            self.tell("started")

    def settle_in(self) -> None:
        """Say in the new directory what was said in the old one, unless somebody has taken the run for unstarted."""
        with suppress(CorruptMetaError):
            if read_meta(self.dir).status == VOID and not self.is_over:
                self.stop("interrupted", "its run directory was removed, and the run was taken back")
                return
        write_meta(self.dir, self.meta, synced=False)

    def tell(self, what: str) -> None:
        """Ring the watchdog. If that fails it looks by itself, sooner or later: no reason to leave the agent alone."""
        with suppress(OSError):
            ring(self.launch.bells, "watchdog", f"{what} {os.path.basename(self.dir)}")

    def hear_taken_back(self) -> None:
        """Somebody took the run for one that never started: it must not go on beside the next attempt."""
        if rundir.is_put_away(self.dir) and not self.is_over:
            self.stop("interrupted", "its run directory was removed, and the run was taken back")

    def beat(self, now: float) -> None:
        """A sign of life, with who is there and how far they are. Needs no fsync: it is made again."""
        if now < self.next_beat:
            return
        self.next_beat = now + self.launch.heartbeat
        if not self.is_brief:
            self.no_other()
        if not self.place.keep():
            self.hear_taken_back()
            return
        meta = self.meta
        meta.heartbeat = Heartbeat(meta.heartbeat.seq + 1, iso(self.clock.wall_ms()) or "")
        meta.processes = self.agent.processes()
        meta.progress = self.drop_off.progress()
        try:
            write_meta(self.dir, meta, synced=False)
        except OSError:
            self.place.show_life()

    def wait(self, now: float) -> None:
        """Sleep until output, a signal, or the next thing to do."""
        if now >= self.kill_at or self.agent.needs_looks:
            pause = SWEEP_PAUSE
        else:
            deadline = math.inf if self.is_over else self.deadline
            next_thing = min(self.next_beat, self.tell_at, self.kill_at, deadline)
            pause = min(max(0.0, next_thing - now), LONGEST_WAIT)
        for fd, _ in self.poll.poll(math.ceil(pause * 1000)):
            if fd == self.wakeup:
                os.read(fd, 4096)
            elif fd in self.output:
                self.output.collect(fd)

    # ------------------------------------------------------------------ the end

    @property
    def is_brief(self) -> bool:
        """Whether its agent has gone its own way, and so shortly that nobody can mean to kill its supervisor for it."""
        took = self.clock.boot() - self.meta.claimed_boot
        return self.has_agent and self.stopping is None and took < min(BRIEF, self.launch.heartbeat)

    def leave(self) -> None:
        """Let go of everything of this run."""
        lay_down()
        signal.set_wakeup_fd(-1)
        for fd in (self.wakeup, self.wakeup_writer):
            os.close(fd)
        self.place.leave()
        self.agent.leave()
        self.drop_off.clear()

    def conclude(self) -> None:
        """Everything of the run has ended: say how."""
        self.output.drain()
        if self.agent.end is None:
            raise AssertionError("nothing of the run is left and the agent was not seen to end")
        end = self.agent.end
        self.meta.exit_code = end.code
        self.meta.signal = _signal_name(end.signal) if end.signal is not None else None
        self.meta.artifacts = self.drop_off.artifacts()
        problem = self.take_result()
        if self.stopping:
            reason, sentence = self.stopping
            status = Status.CANCELLED if reason == "cancelled" else Status.FAILED
            self.end(status, reason, error=sentence)
        elif end.code == 0 and not end.cause:
            self.end(Status.COMPLETED, "exit", error=problem)
        else:
            reason, sentence = self.failure(end)
            self.end(Status.FAILED, reason, error=sentence)

    def failure(self, end: End) -> tuple[str, str]:
        """A word and a sentence for the end of an agent that was not asked to stop."""
        if end.cause:
            return "oom" if end.cause == OUT_OF_MEMORY else "stopped", end.cause
        if end.code is not None:
            return "exit", f"the agent ended with exit code {end.code}"
        return "signal", f"the agent was ended by {self.meta.signal}"

    def take_result(self) -> str:
        """Read the agent's result file; returns a sentence if there is one that cannot be used."""
        try:
            self.meta.result = self.drop_off.result()
        except FileNotFoundError:
            return ""
        except UnusableResultError as error:
            return f"the agent's result file was left aside: {error}"
        self.meta.cost = cost_of(self.meta.result)
        return ""

    def end(self, status: Status, reason: str, *, error: str = "") -> None:
        """The last act: write the end durably, and tell the watchdog.

        It is told before the last sync: its own record is durable too, and the next in line is waiting for it.
        """
        meta = self.meta
        meta.status, meta.reason, meta.error = status, reason, error
        meta.finished_at = self.clock.wall_ms()
        meta.held = self.clock.boot() - meta.claimed_boot
        meta.processes = []
        meta.progress = self.drop_off.progress()
        if status is not Status.COMPLETED:
            meta.log_tail = last_words(self.dir)
        self.place.persist(lambda: write_meta(self.dir, meta, synced=True))
        self.tell("ended")
        self.place.persist(lambda: sync_directory(self.dir))


def hands_for(launch: Launch, run_dir: str, user: str, poll: "select.poll") -> tuple[Agent, DropOff]:
    """The agent as the orders want it, a child process or in a unit of its own, and the way to what it leaves."""
    if launch.unit is None:
        return Child(), OwnDropOff(run_dir, launch)
    if launch.unit.user is None:
        return UnitAgent(units_by(launch.unit.by, run_dir), launch.unit, poll), OwnDropOff(run_dir, launch)
    porter = Porter(launch.unit.by)
    return UnitAgent(porter, launch.unit, poll), ClerkedDropOff(porter, user, run_dir, launch)


def read_cancel(run_dir: str) -> str | None:
    """Who asked for this run to be cancelled, if anybody did."""
    try:
        note = json.decode(read_plain(os.path.join(run_dir, rundir.CANCEL), 65536))
        return str(note["by"])
    except FileNotFoundError:
        return None
    except (FairleadError, OSError, ValueError, KeyError, TypeError):
        return "somebody"  # the note is there, whatever it says


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _start_error(launch: Launch, error: OSError | ValueError) -> str:
    if isinstance(error, ValueError):
        return f"the agent could not be started: {error} in its arguments or environment"
    if error.errno == errno.E2BIG:
        return "the prompt is too long for a command line: let the agent read {prompt_file} or stdin."
    return f"the agent could not be started: {error.filename or launch.argv[0]}: {error.strerror}"
