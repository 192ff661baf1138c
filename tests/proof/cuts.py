"""The second proof: the power is cut at a random moment under load, again and again, and then the judge.

An acknowledgement counts whenever it was heard, before the cut or after: nothing can become durable after a cut, so a
product that acknowledges then has lied.
"""

import os
import random
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.proof import disk, nosync, store
from tests.proof import evidence as files
from tests.proof.disk import Cut, Disk
from tests.proof.evidence import Evidence
from tests.proof.instance import Instance
from tests.proof.judge import Charge, Objection, judge
from tests.proof.load import Entrance, Tasks
from tests.proof.waiting import boottime, wait_for

_TICK = 0.005
_SUBMITTERS_AT_ONCE = 2
#: The first acknowledgement after a start is waited for this long.
_FIRST = 20.0
#: Out of ten cuts.
_HOW = {Cut.HARD: 8, Cut.LOGGED: 1, Cut.SYNCED: 1}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The size of the proof."""

    cuts: int = 200
    #: Cuts without working syncs: these must lose something, or the proof is blind.
    control: int = 5
    users: int = 20
    slots: int = 8
    seed: int = 1
    #: Seconds without any progress after which the queue counts as stuck.
    patience: float = 60.0
    #: Seconds of work between two cuts, at most.
    longest: float = 1.6


@dataclass
class Outcome:
    """What came of it."""

    settings: Settings
    cuts: Counter[Cut] = field(default_factory=Counter)
    #: Acknowledged tasks that the files or the store had no trace of right after a cut.
    gone: list[str] = field(default_factory=list)
    cutting: float = 0.0
    draining: float = 0.0
    evidence: Evidence = field(default_factory=Evidence)
    objections: list[Objection] = field(default_factory=list)
    #: Of the control arm: acknowledged, and lost. None: there was none, for this reason.
    control: tuple[int, int] | None = None
    no_control: str = ""

    @property
    def blind(self) -> bool:
        """Whether the control arm lost nothing: then this proof proves nothing."""
        return self.control is not None and self.control[1] == 0

    @property
    def passed(self) -> bool:
        """Whether the proof stands."""
        return not self.objections and not self.blind and self.cuts.total() >= self.settings.cuts


class Cutting:
    """One disk with an instance on it; its witness is on another."""

    def __init__(self, directory: str, settings: Settings, environment: dict[str, str] | None = None) -> None:
        self.settings = settings
        self.directory = directory
        self.witness = os.path.join(directory, "witness")
        for name in ("marks", "locks", "files"):
            os.makedirs(os.path.join(self.witness, name))
        self.disk = Disk(os.path.join(directory, "image"), os.path.join(directory, "disk"))
        home = os.path.join(self.disk.mounted, "home")
        self.instance = Instance(home, os.path.join(directory, "logs"), environment)
        self.entrance = Entrance(self.instance, self.witness, os.path.join(self.witness, "files"))
        self.tasks = Tasks(settings.seed, settings.users)
        self.choices = random.Random(f"cuts {settings.seed}")
        # How often there is time to drop a file is not the seed's to say: it must not change the cuts.
        self.drops = random.Random(f"drops {settings.seed}")
        self.seen_accepted: set[str] = set()
        self.cuts: list[int] = []
        self.gone: list[str] = []
        self.broken: list[str] = []

    def bring_up(self) -> None:
        """Mount the disk and set the instance up, once."""
        self.disk.mount()
        self.instance.configure(self.settings.slots)
        self.instance.bring_up()
        subprocess.run(["sync", "-f", self.disk.mounted], check=True)

    def tear_down(self) -> None:
        """End everything and let go of the disk."""
        self.instance.kill_everything()
        if os.path.ismount(self.disk.mounted):
            self.disk.unmount()

    # ------------------------------------------------------------------ one cut

    def choose(self) -> Cut:
        """How hard the next cut is."""
        return self.choices.choices(list(_HOW), weights=list(_HOW.values()))[0]

    def work_and_cut(self, how: Cut) -> None:
        """Work under load for a random while, cut the power, and look what is left."""
        if len(self.cuts) % 2 == 0:
            # Every other cut comes only after something was acknowledged, however slow the machine is today.
            before = self.entrance.acknowledged
            self._work(_FIRST, lambda: self.entrance.acknowledged > before)
        self._work(self.choices.uniform(0.1, self.settings.longest))
        self.disk.cut(how)
        self.instance.kill_everything()
        # The processes outlive their disk by a moment; what began in that moment was cut off as well.
        self.cuts.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self.entrance.collect()
        self.disk.unmount()
        self.disk.mount()
        self.gone += [f"{name} after cut {len(self.cuts)} ({how.name})" for name in sorted(self._missing())]
        self._boot_anew()

    def _work(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        deadline = boottime() + seconds
        while boottime() < deadline and not enough():
            self.instance.keep_alive()
            self._enter_more()
            self.entrance.collect()
            self._see_accepted()
            time.sleep(_TICK)

    def _enter_more(self) -> None:
        if self.drops.random() < 0.1:
            self.entrance.drop(self.tasks.next(), acknowledged=False)
        while len(self.entrance.submitters) < _SUBMITTERS_AT_ONCE:
            self.entrance.submit(self.tasks.next())

    def _see_accepted(self) -> None:
        """A dropped file is acknowledged once it is seen in accepted/."""
        for folder, _, names in os.walk(self.instance.path("accepted")):
            for path in {os.path.join(folder, name) for name in names} - self.seen_accepted:
                self.seen_accepted.add(path)
                for name in files.names_in_file(path) & self.entrance.entered.keys():
                    self.entrance.acknowledge(name)

    def _missing(self) -> set[str]:
        """Acknowledged tasks that neither wait in the spool nor are both in a file and in the store."""
        acknowledged = {task.name for task in self.entrance.entered.values() if task.acknowledged}
        home = self.instance.home
        taken_in = files.names_in_files(home, "accepted", "archive") & self._in_store()
        return acknowledged - files.names_in_files(home, "spool") - taken_in

    def _in_store(self) -> set[str]:
        try:
            return set(store.statuses(self.instance.home))
        except store.BrokenStoreError as error:
            self.broken.append(f"after cut {len(self.cuts)}: {error}")
            return set()

    def _boot_anew(self) -> None:
        """After every other cut the instance sees another boot id, as after a real one."""
        if self.choices.random() < 0.5:
            self.instance.boot_id = os.path.join(self.witness, "boot_id")
            with open(self.instance.boot_id, "w", encoding="ascii") as file:
                file.write(f"{uuid.UUID(int=self.choices.getrandbits(128))}\n")

    # ------------------------------------------------------------------ after the last one

    def drain(self, say: Callable[[str], None]) -> None:
        """Let everything that is left run to its end, or until nothing moves any more."""
        archived, moved, told = -1, boottime(), boottime()
        while boottime() - moved < self.settings.patience:
            self.instance.keep_alive()
            count = sum(1 for _ in files.archived(self.instance.home))
            if count != archived:
                archived, moved = count, boottime()
            waiting = files.names_in_files(self.instance.home, "accepted", "spool")
            if not waiting:
                return
            if boottime() - told > 5.0:
                told = boottime()
                say(f"draining: {archived} archived, {len(waiting)} waiting")
            wait_for(lambda: False, 0.5)

    def gather(self) -> Evidence:
        """Put the evidence together."""
        found, home = Evidence(cuts=self.cuts, slots=self.settings.slots), self.instance.home
        files.add_notes(found, self.witness)
        found.entered = self.entrance.entered
        found.records = list(files.archived(home))
        found.waiting = files.names_in_files(home, "accepted", "spool")
        found.supervisors = files.supervisors(home)
        # A file that was dropped without a sync may be empty after a cut: it was never acknowledged.
        found.rejected = [name for name in files.rejected(home) if self._is_acknowledged(name.split(".")[0])]
        return found

    def _is_acknowledged(self, name: str) -> bool:
        task = self.entrance.entered.get(name)
        return task is None or task.acknowledged


def prove_cuts(directory: str, settings: Settings, say: Callable[[str], None]) -> Outcome:
    """Run the proof and its control in a directory that is removed if it stands, and kept as evidence if not."""
    os.makedirs(directory)
    outcome = Outcome(settings, no_control=nosync.why_not())
    if not outcome.no_control:
        outcome.control = _control(os.path.join(directory, "control"), settings, say)
    cutting = Cutting(os.path.join(directory, "proof"), settings)
    try:
        _cut_and_judge(cutting, outcome, say)
    finally:
        cutting.tear_down()
    if outcome.passed:
        shutil.rmtree(directory)
    return outcome


def _cut_and_judge(cutting: Cutting, outcome: Outcome, say: Callable[[str], None]) -> None:
    began = told = boottime()
    cutting.bring_up()
    while outcome.cuts.total() < outcome.settings.cuts:
        how = cutting.choose()
        cutting.work_and_cut(how)
        outcome.cuts[how] += 1
        if boottime() - told > 5.0:
            told = boottime()
            entered = cutting.entrance.entered.values()
            acknowledged = sum(task.acknowledged for task in entered)
            say(f"{outcome.cuts.total()} cuts; {acknowledged} acknowledged of {len(entered)}, {len(cutting.gone)} gone")
    outcome.cutting = boottime() - began
    # What was interrupted by a cut may look like a crash; from here on nothing may end by itself.
    cutting.instance.crashes.clear()
    cutting.drain(say)
    outcome.draining = boottime() - began - outcome.cutting
    cutting.instance.stop()
    outcome.evidence = cutting.gather()
    outcome.evidence.crashes = cutting.instance.crashes
    outcome.gone = cutting.gone
    outcome.objections = [
        *judge(outcome.evidence),
        *(Objection(Charge.LOST, one) for one in cutting.gone),
        *(Objection(Charge.BROKEN, one) for one in cutting.broken),
    ]


def _control(directory: str, settings: Settings, say: Callable[[str], None]) -> tuple[int, int]:
    """The same without working syncs, each cut on a fresh disk: returns how many were acknowledged, and lost."""
    acknowledged = lost = 0
    for number in range(settings.control):
        place = os.path.join(directory, str(number))
        os.makedirs(place)
        control = Cutting(place, replace(settings, seed=settings.seed + number), nosync.environment(place))
        try:
            control.bring_up()
            control.work_and_cut(Cut.HARD)
            acknowledged += sum(task.acknowledged for task in control.entrance.entered.values())
            lost += len(control.gone)
        finally:
            control.tear_down()
            shutil.rmtree(place)
    say(f"control: {lost} of {acknowledged} acknowledged tasks lost without syncs")
    return acknowledged, lost


def why_not() -> str:
    """Why this proof cannot be made here; empty if it can."""
    return disk.why_not()
