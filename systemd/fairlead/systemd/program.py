"""The interpreter and the command that the units name: whether those who are to run them can, and may be trusted to."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator

import fairlead.base
from fairlead.base.errors import RefusedError

_ELSEWHERE = (
    "install Fairlead where everybody can run it and only root can change it: `python3 -m venv /opt/fairlead &&"
    " /opt/fairlead/bin/pip install fairlead && /opt/fairlead/bin/fairlead install`."
)


class UnfitProgramError(RefusedError):
    """The services cannot be run from here."""


def python() -> str:
    """The interpreter that runs this."""
    return sys.executable


def command() -> str:
    """The `fairlead` command that belongs to this interpreter."""
    beside = os.path.join(os.path.dirname(sys.executable), "fairlead")
    for place in (os.path.abspath(sys.argv[0]), beside, shutil.which("fairlead") or ""):
        if os.path.basename(place) == "fairlead" and os.access(place, os.X_OK):
            return place
    raise UnfitProgramError(f"there is no `fairlead` command beside {sys.executable}; {_ELSEWHERE}")


def check_for_all() -> None:
    """Refuse programs that the services' account could not run, or that others than root could change."""
    used = (sys.executable, command(), os.__file__, os.path.dirname(fairlead.base.__file__))
    for path in used:
        for place in _way_to(path):
            _check(place, path)


def _check(place: str, path: str) -> None:
    status = os.lstat(place)
    if stat.S_ISLNK(status.st_mode):
        return
    if not status.st_mode & (stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH):
        raise UnfitProgramError(f"the services need {path}, but {place} is closed to them; {_ELSEWHERE}")
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_uid != 0 or (status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky):
        raise UnfitProgramError(f"root would run {path}, but others can change {place}; {_ELSEWHERE}")


def _way_to(path: str) -> Iterator[str]:
    """Every directory and link that is passed on the way to a file, and the file."""
    passed = "/"
    for part in os.path.abspath(path).split("/"):
        passed = os.path.join(passed, part)
        yield passed
        if os.path.islink(passed):
            yield from _way_to(os.path.join(os.path.dirname(passed), os.readlink(passed)))
