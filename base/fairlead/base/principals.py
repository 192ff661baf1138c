"""Who is meant by `alice` and by `group:web`, by the word of the system."""

import grp
import os
import pwd
from collections.abc import Collection
from functools import lru_cache

#: What a principal begins with that means all members of a group.
GROUP = "group:"
#: Users whose groups are remembered.
_REMEMBERED = 4096


def is_among(user: str, principals: Collection[str]) -> bool:
    """Whether one of the principals means this user, by his name or by a group of his, the primary one included."""
    if user in principals:
        return True
    groups = {one.removeprefix(GROUP) for one in principals if one.startswith(GROUP)}
    return bool(groups) and not groups.isdisjoint(groups_of(user))


@lru_cache(maxsize=_REMEMBERED)
def groups_of(user: str) -> frozenset[str]:
    """The names of a user's groups; none of one whom the system does not know. Remembered until `forget_groups`."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return frozenset()
    return frozenset(name for gid in os.getgrouplist(user, entry.pw_gid) if (name := _group_name(gid)))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def is_root(user: str) -> bool:
    """Whether a name is the super-user's, or another one of his."""
    try:
        return pwd.getpwnam(user).pw_uid == 0
    except KeyError:
        return user in ("root", "uid-0")


def forget_groups() -> None:
    """Ask the system anew: somebody may have joined or left a group."""
    groups_of.cache_clear()
