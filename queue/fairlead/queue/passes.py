"""One pass over named steps, in a process that must not stop because one of them cannot be done now."""

from collections.abc import Callable, Sequence

from fairlead.base.files import SyncFailedError
from fairlead.base.logs import Log
from fairlead.queue.errors import StoreBrokenError


def guarded(steps: Sequence[Callable[[], None]], log: Log) -> bool:
    """Do each step; one that fails is logged and does not keep the others from being done.

    Returns whether all went well. A store or disk that cannot be trusted ends the process: nothing may be decided then.
    """
    went_well = True
    for step in steps:
        try:
            step()
        except (StoreBrokenError, SyncFailedError):
            raise
        except Exception as error:  # whatever it was, the next pass tries again
            went_well = False
            log.error("step_failed", step=step.__name__, error=str(error), exc_info=not _is_expected(error))
    return went_well


def _is_expected(error: Exception) -> bool:
    """Whether an error speaks for itself: a full disk, a busy store."""
    return isinstance(error, OSError) or type(error).__module__.startswith("fairlead.")
