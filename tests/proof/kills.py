"""The first proof: random kill -9 among all processes of an instance under load, and then the judge."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.proof import evidence as files
from tests.proof.evidence import Evidence, Process
from tests.proof.instance import Instance
from tests.proof.judge import Objection, judge
from tests.proof.load import Entrance, Tasks
from tests.proof.plan import Step, plan
from tests.proof.processes import Family, Role, Seen, belonging_to, describe, kill
from tests.proof.requests import Requests, nothing_waits_or_runs
from tests.proof.waiting import boottime, wait_for

#: Between two looks around.
_TICK = 0.004
#: A role of which nobody appears for this long is passed over.
_PATIENCE = 3.0
#: Services that end by themselves more often than this do not work at all.
_BROKEN = 20
_SUBMITTERS_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The size of the proof."""

    kills: int = 1000
    users: int = 20
    slots: int = 8
    minutes: float = 30.0
    seed: int = 1
    #: Seconds without any progress after which the queue counts as stuck.
    patience: float = 60.0
    #: Seconds between two kills, on the average.
    pause: float = 0.35


@dataclass
class Outcome:
    """What came of it."""

    settings: Settings
    killed: Counter[Role] = field(default_factory=Counter)
    #: Seconds in which the kills happened, and until the queue was empty.
    killing: float = 0.0
    draining: float = 0.0
    evidence: Evidence = field(default_factory=Evidence)
    objections: list[Objection] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    service_starts: int = 0
    drained: bool = False

    @property
    def passed(self) -> bool:
        """Whether the proof stands: all kills happened, and the judge has no objection."""
        return not self.objections and self.killed.total() >= self.settings.kills


class Killing:
    """One instance, its load and its killer, in a directory of their own."""

    def __init__(self, directory: str, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self.witness = os.path.join(directory, "witness")
        for name in ("marks", "locks", "files"):
            os.makedirs(os.path.join(self.witness, name))
        self.instance = Instance(os.path.join(directory, "home"), os.path.join(directory, "logs"))
        self.entrance = Entrance(self.instance, self.witness, os.path.join(self.witness, "files"))
        self.requests = Requests(self.instance, settings.seed)
        self.tasks = Tasks(settings.seed, settings.users)
        self._next = self.tasks.next()
        self.family = Family()
        self.steps = plan(settings.seed, settings.pause)
        #: Whom we killed, and when.
        self.killed: dict[Process, int] = {}
        self.outcome = Outcome(settings)
        self._archived, self._counted = 0, 0.0
        self._told = boottime()

    def run(self) -> Outcome:
        """All of it: load and kills, then quiet, then the judge."""
        self.instance.configure(self.settings.slots)
        began = boottime()
        try:
            for role, pid in self.instance.bring_up():
                self.family.add(pid, role)
            self._kill_all_planned(began + self.settings.minutes * 60)
            self.outcome.killing = boottime() - began
            self._drain()
            self.outcome.draining = boottime() - began - self.outcome.killing
            self.instance.stop()
            self._gather()
        finally:
            self.instance.kill_everything()
        self.outcome.objections = judge(self.outcome.evidence)
        return self.outcome

    # ------------------------------------------------------------------ under load

    def tick(self) -> None:
        """Restart who died, hear submitters, look who is there."""
        for role, pid in self.instance.keep_alive():
            self.family.add(pid, role)
        self.entrance.collect()
        self.requests.collect()
        self.family.look()

    def _kill_all_planned(self, deadline: float) -> None:
        while self.outcome.killed.total() < self.settings.kills and boottime() < deadline and not self._is_broken():
            self._carry_out(next(self.steps))

    def _is_broken(self) -> bool:
        return len(self.instance.crashes) > _BROKEN

    def _carry_out(self, step: Step) -> None:
        """Let the time pass under load, find the victim, kill it."""
        self._work_until(lambda: False, step.pause)
        if step.newborn is None:
            self._work_until(lambda: bool(self.family.living(step.role)), _PATIENCE)
            victims = self.family.living(step.role)
        else:
            since = boottime()
            self._work_until(lambda: bool(self._born(step.role, since)), _PATIENCE)
            victims = self._born(step.role, since)[-1:]
            time.sleep(step.newborn if victims else 0)
        if victims:
            self._kill(victims[int(step.which * len(victims))], step.down)

    def _born(self, role: Role, since: float) -> list[Seen]:
        return [seen for seen in self.family.living(role) if seen.since > since]

    def _kill(self, victim: Seen, down: float) -> None:
        # Noted before it is done: a process that dies by itself in between has not been excused for anything.
        self.killed[victim.process] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if kill(victim.process):
            self.outcome.killed[victim.role] += 1
            self.instance.down[victim.role] = boottime() + down
        else:
            del self.killed[victim.process]

    def _work_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Keep the load up until something is true, at most so long."""
        deadline = boottime() + seconds
        while True:
            self.tick()
            self._enter_more()
            if (pid := self.requests.ask()) is not None:
                self.family.add(pid, Role.SUBMITTER)
            self._tell()
            if condition() or boottime() >= deadline:
                return
            time.sleep(_TICK)

    def _enter_more(self) -> None:
        """Keep about three tasks per user in the queue, each entering in the way it was made for."""
        if self._waiting() >= 3 * self.settings.users:
            return
        task = self._next
        if task.dropped:
            self.entrance.drop(task, acknowledged=True)
        elif len(self.entrance.submitters) < _SUBMITTERS_AT_ONCE:
            self.family.add(self.entrance.submit(task), Role.SUBMITTER)
        else:
            return
        self._next = self.tasks.next()

    def _waiting(self) -> int:
        """About how many tasks wait or run: what died unseen must not count for ever."""
        if boottime() - self._counted > 0.25:
            self._counted, self._archived = boottime(), files.count_archived(self.instance.home)
        return self.entrance.acknowledged + len(self.entrance.submitters) - self._archived

    def _tell(self) -> None:
        if boottime() - self._told < 5.0:
            return
        self._told = boottime()
        kills = ", ".join(f"{count} {role}" for role, count in sorted(self.outcome.killed.items()))
        self.say(
            f"{self.outcome.killed.total()} of {self.settings.kills} kills ({kills}); "
            f"{len(self.entrance.entered)} tasks entered, {self._archived} archived"
        )

    # ------------------------------------------------------------------ in quiet

    def _drain(self) -> None:
        """No more kills, no more tasks: wait until everything acknowledged is archived, or nothing moves any more."""
        self.outcome.drained = False
        archived, moved = -1, boottime()
        while boottime() - moved < self.settings.patience and not self._is_broken():
            self.tick()
            names = {record.name for record in files.archived(self.instance.home)}
            if len(names) != archived:
                archived, moved = len(names), boottime()
            asked = bool(self.entrance.submitters) or self.requests.busy
            if not asked and not self._missing(names) and self._is_quiet():
                self.outcome.drained = True
                return
            self._tell()
            wait_for(lambda: False, 0.5)

    def _missing(self, archived: set[str]) -> set[str]:
        acknowledged = {task.name for task in self.entrance.entered.values() if task.acknowledged}
        return acknowledged - archived

    def _is_quiet(self) -> bool:
        """Nothing runs, and nothing waits: not even what was entered and never acknowledged."""
        busy = self.family.living(Role.SUPERVISOR) or self.family.living(Role.AGENT)
        waiting = busy or files.names_in_files(self.instance.home, "accepted", "spool")
        return not waiting and nothing_waits_or_runs(self.instance)

    def _gather(self) -> None:
        """Put the evidence together, after everything has ended."""
        found, home = self.outcome.evidence, self.instance.home
        files.add_notes(found, self.witness)
        found.entered = self.entrance.entered
        found.records = list(files.archived(home))
        found.waiting = files.names_in_files(home, "accepted", "spool")
        found.supervisors = files.supervisors(home)
        found.killed, found.killed_at = set(self.killed), self.killed
        found.requests = self.requests.made
        found.rejected = files.rejected(home)
        found.crashes = self.instance.crashes
        wait_for(lambda: not belonging_to(home), 5.0)
        found.alive = [describe(process) for process in belonging_to(home)]
        self.outcome.refusals = self.entrance.refusals
        self.outcome.service_starts = self.instance.starts


def prove_kills(directory: str, settings: Settings, say: Callable[[str], None]) -> Outcome:
    """Run the proof in a directory that is removed if it stands, and kept as evidence if not."""
    os.makedirs(directory)
    outcome = Killing(directory, settings, say).run()
    if outcome.passed:
        shutil.rmtree(directory)
    return outcome
