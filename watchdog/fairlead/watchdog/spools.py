"""Users' spools are tidied by clerks: old refused files, and drop-offs of runs whose supervisors could not do it."""

from contextlib import closing

from fairlead.base.errors import FairleadError
from fairlead.base.files import names_in
from fairlead.base.ids import is_name
from fairlead.conductor import errands
from fairlead.conductor.porter import Porter, run_errand
from fairlead.queue.instance import Instance
from fairlead.queue.task import Task

#: A clerk is waited for no longer than this: his user may have stopped him, and ends are to be recorded.
PATIENCE = 2.0
_DAY = 86_400.0


class Spools:
    """The spools of the system's instance; one's own has none of this kind."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._users: set[str] = set()

    def note(self, user: str) -> None:
        """A run of this user has ended, and its supervisor with it: nobody has cleared its drop-off."""
        if self.instance.paths.is_system:
            self._users.add(user)

    def note_all(self) -> None:
        """Look at everybody's spool."""
        if self.instance.paths.is_system:
            self._users |= {name for name in names_in(self.instance.paths.spool) if is_name(name)}

    def tidy(self) -> None:
        """Send a clerk to each spool that was noted. What cannot be done now is done with the next look at all."""
        if not self._users:
            return
        active = self.instance.store.active()
        porter = Porter(self.instance.paths.porter)
        try:
            while self._users:
                user = self._users.pop()
                self._tidy(porter, user, [_run(task) for task in active if task.spec.user == user])
        finally:
            porter.close()

    def _tidy(self, porter: Porter, user: str, runs: list[str]) -> None:
        instance = self.instance
        before = instance.clock.wall_ms() / 1000 - instance.config.retention.days * _DAY
        try:
            with closing(porter.hire(user)) as line:
                line.settimeout(PATIENCE)
                run_errand(line, errands.Prune(before, runs))
        except FairleadError as error:
            instance.log.warning("spool_not_tidied", user=user, error=str(error))


def _run(task: Task) -> str:
    return f"{task.id}.{task.attempt}"
