"""The place that a supervisor keeps: a run directory, which its agent may remove or replace at any moment."""

import os
import time
from collections.abc import Callable
from contextlib import suppress

from fairlead.conductor import rundir
from fairlead.conductor.meta import touch_meta

#: Between two tries to write the end while the disk refuses.
WRITE_PAUSE = 1.0


class Place:
    """Where others look for a run, and so where its supervisor has to live."""

    def __init__(self, run_dir: str, settle_in: Callable[[], None]) -> None:
        self.dir = run_dir
        #: Says in a new directory what was said in the old one.
        self._settle_in = settle_in
        self._fd = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def keep(self) -> bool:
        """Live there, although the agent may have removed or replaced the directory.

        False while that cannot be: somebody else is in there, or the run is over for everybody else.
        """
        if rundir.is_at(self._fd, self.dir):
            with suppress(OSError):
                rundir.regain(self.dir)
            return True
        if self.is_lost:
            return False
        with suppress(OSError):
            fd = rundir.move_in(self.dir)
            if fd is not None:
                os.close(self._fd)
                self._fd = fd
                self._settle_in()
                return True
        return False

    @property
    def is_lost(self) -> bool:
        """Whether there is no such place any more: the run was recorded or taken back, or the instance is gone."""
        return rundir.is_put_away(self.dir) or not rundir.has_home(self.dir)

    def persist(self, write: Callable[[], None]) -> None:
        """Write what must not be lost, not even to a full disk: stay, with the lock held, until it can be written."""
        while not self.is_lost:
            try:
                if self.keep():
                    write()
                    return
            except FileNotFoundError:
                continue  # put away a moment ago, or removed again
            except OSError:
                self.show_life()
            time.sleep(WRITE_PAUSE)

    def show_life(self) -> None:
        """A full disk must not end the run, nor make it look dead."""
        with suppress(OSError):
            touch_meta(self.dir)

    def leave(self) -> None:
        """Let go of the directory."""
        os.close(self._fd)
