"""Units of runs that are over: their supervisors let systemd forget them, and where one died first it is done here."""

from fairlead.base.clock import Clock
from fairlead.base.errors import FairleadError
from fairlead.conductor.in_unit import units_by
from fairlead.conductor.starter import starter_of
from fairlead.queue.errors import NoSuchTaskError
from fairlead.queue.instance import Instance
from fairlead.queue.states import ACTIVE
from fairlead.systemd.unit import NoManagerError, Units, run_of

#: A unit is left alone for so long after it was first seen to be of no use: a request to start it may be on its way,
#: and its supervisor may be about to do the same.
PATIENCE = 10.0


class LeftUnits:
    """Lets systemd forget units of attempts that are over, fences among them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.clock: Clock = instance.clock
        self._first_seen: dict[str, float] = {}

    def clear(self) -> None:
        """Forget those that have been of no use for a while."""
        instance = self.instance
        by = starter_of(instance.config, instance.paths, instance.environ)
        if not by:
            return
        units = units_by(by, instance.paths.run)
        try:
            useless = {name for name in units.names() if self._is_useless(name)}
            now = self.clock.boot()
            self._first_seen = {name: self._first_seen.get(name, now) for name in useless}
            for name in [name for name, seen in self._first_seen.items() if now - seen >= PATIENCE]:
                self._forget(units, name)
        finally:
            units.close()

    def _forget(self, units: Units, name: str) -> None:
        """One that cannot be forgotten now must not keep the others from it."""
        try:
            units.forget(name)
        except NoManagerError:
            raise  # that is all the others' trouble too
        except FairleadError as error:
            self.instance.log.error("cannot_forget_unit", unit=name, error=str(error))
            return
        del self._first_seen[name]
        self.instance.log.info("unit_forgotten", unit=name)

    def _is_useless(self, name: str) -> bool:
        """Whether its attempt is over. What this instance does not know may be another's: that is left alone."""
        run = run_of(name)
        if run is None:
            return False
        task_id, attempt = run
        try:
            task = self.instance.store.get(task_id)
        except NoSuchTaskError:
            return False
        return task.status not in ACTIVE or task.attempt != attempt
