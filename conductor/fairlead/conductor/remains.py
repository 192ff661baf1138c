"""What is left of a run whose supervisor is gone: found, ended, and seen to be gone.

A run in a unit is its control group; without one it is what bears the run's marker, and what was noted of it.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fairlead.base.identity import ProcessId
from fairlead.conductor import tree
from fairlead.conductor.in_unit import units_by
from fairlead.conductor.meta import Meta
from fairlead.conductor.orders import MARKER
from fairlead.systemd.unit import Units, processes_in, unit_of

#: How long processes that were killed get to be gone.
PATIENCE = 2.0


class Remains:
    """Looks for what is left of runs, with the rights of whoever looks."""

    def __init__(self, starter: Callable[[], str], folder: str) -> None:
        #: Who starts units by the settings in force; empty: nobody does.
        self._starter = starter
        self._folder = folder

    def end(
        self, task_id: str, attempt: int, lock_id: str, meta: Meta | None, more: Iterable[ProcessId] = ()
    ) -> list[ProcessId]:
        """End what is alive of a run without a supervisor; returns what is still there after a moment.

        From then on its unit cannot be started any more: a request may still have been on its way.
        """
        in_unit = self._end_unit(unit_of(task_id, attempt), meta)
        left = tree.end_leftovers(MARKER, lock_id, [*(meta.processes if meta else ()), *more], PATIENCE)
        return sorted({*left, *in_unit})

    def _end_unit(self, name: str, meta: Meta | None) -> list[ProcessId]:
        with self._units(meta) as units:
            if units is None or units.fence(name):
                return []
            cgroup = units.state(name).cgroup
            units.signal(name, signal.SIGKILL)
            tree.wait_gone(tree.identify(processes_in(cgroup)), PATIENCE)
            return tree.identify(processes_in(cgroup))

    def are_there(self, task_id: str, attempt: int, lock_id: str, noted: Iterable[ProcessId]) -> bool:
        """Whether anything of a run is alive."""
        if tree.leftovers(MARKER, lock_id, noted):
            return True
        with self._units(None) as units:
            return units is not None and bool(processes_in(units.state(unit_of(task_id, attempt)).cgroup))

    @contextmanager
    def _units(self, meta: Meta | None) -> Iterator[Units | None]:
        """Who can be asked about the unit of a run: whoever started it, or whoever would by now."""
        by = (meta.unit_by if meta else "") or self._starter()
        units = units_by(by, self._folder) if by else None
        try:
            yield units
        finally:
            if units is not None:
                units.close()
