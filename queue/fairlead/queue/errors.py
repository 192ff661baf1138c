"""What a store or an operation may refuse, by name."""

from fairlead.base.errors import FairleadError, NotFoundError, RefusedError, UnavailableError


class StoreBusyError(UnavailableError):
    """The store is busy with other writers; try again in a moment."""


class StoreUnavailableError(UnavailableError):
    """The store cannot be opened or written to now."""


class StoreBrokenError(FairleadError):
    """The store cannot be trusted any more: stop, look at the disk, then start again or rebuild."""


class StoreVersionError(FairleadError):
    """The store was written by a newer Fairlead, or SQLite is too old to be safe."""


class NothingChangedError(FairleadError):
    """A task was not in the state that was read a moment before, in the same transaction: look at the store."""


class NoSuchTaskError(NotFoundError):
    """There is no such task."""


class StaleTokenError(RefusedError):
    """Somebody else holds the lock by now: the token is out of date."""


class StaleVersionError(RefusedError):
    """The task was changed by somebody else meanwhile: read it again, then change it."""
