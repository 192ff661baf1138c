"""The watchdog: sees how runs end, frees their locks, archives, prunes. `run_once` is one pass over the named steps."""

from collections.abc import Callable

from fairlead.base.bell import ring_all
from fairlead.queue.instance import Instance
from fairlead.watchdog.archiving import Archiving
from fairlead.watchdog.left_units import LeftUnits
from fairlead.watchdog.quota import RunQuota
from fairlead.watchdog.retention import Retention
from fairlead.watchdog.runs import Runs
from fairlead.watchdog.spools import Spools
from fairlead.watchdog.stale import StaleLocks

#: Seconds between two prunings.
PRUNE_EVERY = 3600.0
#: Of each kind, with one look: a second at the most, in which no end is recorded.
PRUNED_AT_ONCE = 2_000
#: The kernel keeps this many rings for us, unless it is told otherwise, and turns the next ones away.
CROWD = 10
#: The archive waits this long at most while runs ring: who waits for an end, or for his turn, comes first.
PATIENCE = 0.2


class Watchdog:
    """One pass at a time; what it remembers between passes (pulses) it can do without."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.runs = Runs(instance)
        self.stale = StaleLocks(instance)
        self.archiving = Archiving(instance)
        self.retention = Retention(instance)
        self.left_units = LeftUnits(instance)
        self.spools = Spools(instance)
        self.quota = RunQuota(instance)
        #: Run directories that were rung for since the last pass; only these are looked at, until `look_around`.
        self.rung: set[str] = set()
        self.look_around = True
        #: Something is to be archived: it waits until nobody rings, or its time has come.
        self.has_more = False
        self._archive_at = 0.0
        self._freed = False
        self._prune_at = 0.0

    def run_once(self) -> None:
        """A full look at everything."""
        self.look_around = True
        for step in self.steps():
            step()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """What one pass does. Slow looks at everything come with the poll; a ring costs only what it is about."""
        urgent = (self.record_runs, self.wake_dispatcher)
        if not self.look_around:
            return urgent if self._can_archive_later() else (*urgent, self.archive_finished)
        return (
            self.record_runs,
            self.end_quarantines,
            self.free_stale_locks,
            self.wake_dispatcher,
            self.archive_finished,
            self.clear_left_overs,
            self.clear_units,
            self.mind_quotas,
            self.prune,
            self.tidy_spools,
        )

    def hear(self, words: set[str]) -> None:
        """Take in what was rung: `ended NAME` and `started NAME` are about one run, all else and a crowd about all."""
        about_one = {word for word in words if word.startswith(("ended ", "started "))}
        self.rung |= {word.partition(" ")[2] for word in about_one}
        self.look_around = about_one < words or not (words or self.has_more) or len(words) > CROWD

    def _can_archive_later(self) -> bool:
        return bool(self.rung) and not (self.has_more and self.instance.clock.boot() >= self._archive_at)

    # ------------------------------------------------------------------ steps

    def record_runs(self) -> None:
        """What became of each run, in the store; ended ones free their locks."""
        names = set(self.rung)
        self._freed = self.runs.look(None if self.look_around else names) or self._freed
        if self._freed and not self.has_more:
            self.has_more, self._archive_at = True, self.instance.clock.boot() + PATIENCE
        self.rung -= names  # only now: after a look that failed, these are still to be looked at

    def end_quarantines(self) -> None:
        """Locks that were kept because something could not be proven dead."""
        self._freed = self.runs.look_at_quarantine() or self._freed

    def free_stale_locks(self) -> None:
        """Locks of commands that died, and lock files that are nobody's."""
        self._freed = self.stale.look() or self._freed

    def wake_dispatcher(self) -> None:
        """Somebody may start now; whoever waits for an end hears of it too."""
        if self._freed:
            self._freed = False
            ring_all(self.instance.paths.bells, "freed", but="watchdog")

    def archive_finished(self) -> None:
        """Finished tasks are written to the archive."""
        self.has_more = self.archiving.archive_finished()

    def clear_left_overs(self) -> None:
        """Run directories of attempts that are over, left by a crash between two steps."""
        self.archiving.clear_left_overs()

    def clear_units(self) -> None:
        """Units of attempts that are over, left by a supervisor that was killed."""
        self.left_units.clear()

    def mind_quotas(self) -> None:
        """Whose ended runs hold more than they may has the oldest of them removed."""
        self.quota.look()

    def prune(self) -> None:
        """Old records and logs go, now and then."""
        now = self.instance.clock.boot()
        if now >= self._prune_at:
            self.spools.note_all()
            pruned = self.retention.prune(most=PRUNED_AT_ONCE)
            self._prune_at = now if pruned.more else now + PRUNE_EVERY

    def tidy_spools(self) -> None:
        """What nobody needs any more in users' spools."""
        for user in self.runs.deserted:
            self.spools.note(user)
        self.runs.deserted.clear()
        self.spools.tidy()
