"""Who may use the queue, by the system's word, and the spool directory that each of them has."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator

from fairlead.base.errors import RefusedError
from fairlead.base.ids import is_name
from fairlead.base.logs import Log
from fairlead.base.principals import GROUP, is_among
from fairlead.config.schema import Config
from fairlead.porter.becoming import Identity

#: A spool is its user's; our own group may look at the names in it, to hear of new ones.
_MODE = 0o750


class UnknownUserError(RefusedError):
    """There is no such user, or the settings do not allow him."""


class Spools:
    """The spools below one directory."""

    def __init__(self, folder: str, config: Config, gid: int, log: Log) -> None:
        self.folder = folder
        self.config = config
        self.gid = gid
        self.log = log

    def who(self, user: str) -> Identity:
        """A user who may use the queue; everybody else is refused, and so is root under any name."""
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            raise UnknownUserError(f"the system knows no user {user!r}.") from None
        if entry.pw_uid == 0 or not is_name(user) or not is_among(user, self.config.users.allow):
            raise UnknownUserError(f"{user} may not use this queue.")
        return Identity(user, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    def of(self, user: str) -> str:
        """Where a user's spool is."""
        return os.path.join(self.folder, user)

    def make(self) -> list[str]:
        """See to it that everybody who is allowed by name, or is in an allowed group, has his spool; their names."""
        made = []
        for user in sorted(set(self._allowed())):
            try:
                self._make(self.who(user))
            except (UnknownUserError, OSError) as error:
                self.log.warning("no_spool", user=user, error=str(error))
            else:
                made.append(user)
        return made

    def _allowed(self) -> Iterator[str]:
        for principal in self.config.users.allow:
            if principal.startswith(GROUP):
                yield from _members(principal.removeprefix(GROUP))
            else:
                yield principal

    def _make(self, who: Identity) -> None:
        """The folder is root's, so nobody else can have put anything there."""
        path = self.of(who.name)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                raise
            if status.st_uid == who.uid:
                return
        os.chmod(path, _MODE)
        os.chown(path, who.uid, self.gid)


def _members(group: str) -> set[str]:
    """Everybody in a group; those whose primary group it is are not listed in it."""
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        return set()
    return {*entry.gr_mem, *(one.pw_name for one in pwd.getpwall() if one.pw_gid == entry.gr_gid and one.pw_uid != 0)}
