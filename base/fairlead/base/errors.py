"""The base of every error a person may get to see, and which errors are the machine's."""

import errno


class FairleadError(Exception):
    """Something went wrong."""

    #: What the command line exits with.
    exit_code = 1

    def __str__(self) -> str:
        """The given message, or the class's own sentence when none was given."""
        return super().__str__() or (self.__doc__ or "").strip()


class UsageError(FairleadError):
    """The request itself is wrong; asking again in the same way will fail again."""

    exit_code = 2


class NotFoundError(FairleadError):
    """There is no such thing."""

    exit_code = 4


class RefusedError(FairleadError):
    """The request is understood and refused in the present state."""

    exit_code = 5


class UnavailableError(FairleadError):
    """Something that is needed cannot be reached now; trying again later may help."""

    exit_code = 6


#: No room, no descriptors, no memory, no processes: nothing that a single task can be blamed for.
_MACHINE_TROUBLE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EIO,
    }
)


def is_machine_trouble(error: BaseException) -> bool:
    """Whether an error is the machine's and not of what was tried: later it may go well."""
    return isinstance(error, OSError) and error.errno in _MACHINE_TROUBLE
