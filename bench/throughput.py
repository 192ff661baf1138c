"""Programs that do nothing, of twenty users, against task-spooler (Debian's tsp), with the same number of slots.

Both get the same load in the same way: first everything is queued while nothing may start, then the queue is worked
off; both keep what their programs print. Fairlead does so durably and one task per user at a time, task-spooler keeps
its queue in memory. A task counts when its end is recorded. The target is for both parts together: task-spooler
starts a process for each task when it is queued, Fairlead when it runs.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from bench.figures import Figure, at_least, per_second
from bench.instance import Running, running
from bench.measuring import NOTHING, run_program, seconds
from bench.plan import Plan

USERS = 20


class Took(NamedTuple):
    """Seconds for queueing a load and for working it off."""

    queueing: float
    working: float

    @property
    def total(self) -> float:
        """Seconds from the first task queued to the last one's recorded end."""
        return self.queueing + self.working


def run(plan: Plan) -> Iterator[Figure]:
    """Measure with few and with many slots."""
    program = shutil.which("tsp")
    if program is None:
        yield Figure(what="tasks per second", measured="not measured", against="apt-get install task-spooler")
        return
    for slots in (2, 8):
        yield from _with_slots(plan, program, slots)


def _with_slots(plan: Plan, program: str, slots: int) -> Iterator[Figure]:
    count = USERS * plan.tasks
    with running(os.path.join(plan.place, f"throughput-{slots}"), slots) as instance:
        spooler = _Spooler(program, os.path.join(plan.place, f"spooler-{slots}"), slots)
        pairs = [(_fairlead(instance, number, count), spooler.load(count)) for number in range(plan.loads)]
        spooler.close()
    yield _figure(
        f"tasks of {USERS} users, {slots} slots", count, [(ours.total, theirs.total) for ours, theirs in pairs]
    )
    working = [(ours.working, theirs.working) for ours, theirs in pairs]
    yield _figure(f"the same, working off alone, {slots} slots", count, working, goal=False)


def _figure(what: str, count: int, pairs: Sequence[tuple[float, float]], *, goal: bool = True) -> Figure:
    ours, theirs = (count / median(column) for column in zip(*pairs, strict=True))
    return Figure(
        what=what,
        measured=per_second(ours),
        against=f"{per_second(theirs)}: task-spooler",
        ratio=ours / theirs,
        target=at_least(ours / theirs, 0.35) if goal else None,
    )


def _fairlead(instance: Running, number: int, count: int) -> Took:
    instance.pause()
    queueing = seconds(lambda: _queue(instance, number, count))
    working = seconds(lambda: _work_off(instance, (number + 1) * count))
    instance.wait_archived()
    return Took(queueing, working)


def _queue(instance: Running, number: int, count: int) -> None:
    for task in range(count):
        instance.drop(instance.write(f"task-{number}-{task}.json", f"user{task % USERS}", [NOTHING]))
    instance.wait_pending(count)


def _work_off(instance: Running, finished: int) -> None:
    instance.resume()
    instance.wait_finished(finished)


class _Spooler:
    """A task-spooler server of our own."""

    def __init__(self, program: str, place: str, slots: int) -> None:
        os.mkdir(place)
        self.program = program
        self.slots = slots
        self.gate = os.path.join(place, "gate")
        os.mkfifo(self.gate)
        settings = {"TS_SOCKET": os.path.join(place, "socket"), "TS_MAXFINISHED": "10", "TMPDIR": place}
        self.env = dict(os.environ) | settings | {"TS_SLOTS": str(slots)}

    def load(self, count: int) -> Took:
        """Queue the load behind programs that keep every slot until a gate is opened, then let it go."""
        for _ in range(self.slots):
            self._tsp("/bin/sh", "-c", f": < {self.gate}")
        return Took(seconds(lambda: self._queue(count)), seconds(self._work_off))

    def _queue(self, count: int) -> None:
        for _ in range(count):
            self._tsp(NOTHING)

    def _work_off(self) -> None:
        gate = os.open(self.gate, os.O_WRONLY)
        while any(state in self._list() for state in ("queued", "running")):
            self._tsp("-w")  # for the last one that was queued; others may take a moment longer
        os.close(gate)

    def _tsp(self, *words: str) -> None:
        run_program((self.program, *words), self.env)

    def _list(self) -> str:
        return subprocess.run([self.program, "-l"], env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout

    def close(self) -> None:
        """End the server."""
        self._tsp("-K")
