"""What commands need that must feel instant: only the store, and no argparse as long as nothing is to be parsed."""

import os
from collections.abc import Callable

from fairlead.base.errors import UnavailableError
from fairlead.config.paths import Paths, find_paths
from fairlead.queue.sqlite.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairlead.cli.arguments import Parser


#: What to do about an instance that is not the one that was meant, or cannot be used.
OTHER_HOME = "set FAIRLEAD_HOME to a directory of yours"


class NoInstanceError(UnavailableError):
    """There is no instance yet."""


def wants_json(words: list[str], make_parser: "Callable[[], Parser]") -> bool:
    """Whether a command that takes nothing but --json was given it; whatever else was given, its parser answers."""
    if words in ([], ["--json"]):
        return bool(words)
    return bool(make_parser().parse_args(words).json)


def is_at_home(path: str) -> bool:
    """Whether a path lies in the instance's home, or on the way to it."""
    home, place = (os.path.join(one, "") for one in (find_paths().home, os.path.abspath(path)))
    return place.startswith(home) or home.startswith(place)


def is_direct(paths: Paths) -> bool:
    """Whether this process may use the store itself: its own, or as the service, which root becomes for that."""
    if not paths.is_system:
        return True
    try:
        home = os.stat(paths.home)
    except OSError:
        return False
    if os.geteuid() == 0 and home.st_uid != 0:
        _become(home.st_uid, home.st_gid)
    return os.geteuid() == home.st_uid


class _Asker:
    """Who started this command: root becomes somebody else, and is root to all who ask."""

    was_root = False


def asker() -> int:
    """The uid of whoever started this command."""
    return 0 if _Asker.was_root else os.getuid()


def _become(uid: int, gid: int) -> None:
    """Be the service's account for good, so that no file of root's appears among its own."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _Asker.was_root = True


def open_connection(paths: Paths) -> Connection:
    """The store, for reading; refuses to make a new one."""
    try:
        os.stat(paths.store)
    except FileNotFoundError:
        raise _missing(paths) from None
    return Connection(paths.store, read_only=True)


def _missing(paths: Paths) -> NoInstanceError:
    """There is no store: not yet, or not any more."""
    from fairlead.queue.instance import refuse_missing_store  # noqa: PLC0415 - only who has none should pay for it

    refuse_missing_store(paths)
    return NoInstanceError(
        f"there is no queue at {paths.home} yet: `fairlead up` starts one there; if yours is elsewhere,"
        " set FAIRLEAD_HOME to its directory."
    )
