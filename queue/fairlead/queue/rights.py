"""Who may do what: pure decisions about a caller, whom the kernel has named, and what he asks for.

In one's own instance whoever can open the store is admin of everything, and users are labels. In the system's:

| what                                            | owner | member | other | operator | admin |
|-------------------------------------------------|-------|--------|-------|----------|-------|
| that a task is there: id, user, project,        |       |        |       |          |       |
|   priority, state, times, number of the attempt | yes   | yes    | yes   | yes      | yes   |
| all else of it: title, prompt, command, payload,|       |        |       |          |       |
|   env, log, result, error, artifacts, details   | yes   | yes    | no    | no       | yes   |
| cancel, change its priority                     | yes   | no     | no    | yes      | yes   |
| retry, requeue                                  | yes*  | no     | no    | yes      | yes   |
| change its title or time                        | yes*  | no     | no    | no       | yes   |
| pause or resume `user:NAME`, hold NAME's lock   | yes*  | no     | no    | yes      | yes   |
| resume what an operator has paused              | no    | no     | no    | yes      | yes   |
| pause or resume all, or a project               | no    | no     | no    | yes      | yes   |
| release a lock whose holder is proven dead      | yes*  | no     | no    | yes      | yes   |
| release a lock by force                         | no    | no     | no    | yes      | yes   |
| submit, for himself                             | yes*  | yes*   | yes*  | yes*     | yes*  |

A member is a user whom the task's project names in `members`; without that key a project has none. `*`: only while
he is in `users.allow`, which operators and admins need for submitting alone. Nobody submits for somebody else, and
root submits nothing: agents never run as root. A project with `members` takes tasks of its members only.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from fairlead.base.errors import RefusedError
from fairlead.base.identity import user_name
from fairlead.base.principals import is_among, is_root
from fairlead.config.schema import Config, Project


class ForbiddenError(RefusedError):
    """Whoever asks for this may not have it."""


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks."""

    name: str
    uid: int
    #: Whether he may use this instance, and not only look.
    is_user: bool = False
    is_operator: bool = False
    is_admin: bool = False


class Deed(StrEnum):
    """What can be done with a task, as it is said."""

    READ = "read"
    CANCEL = "cancel"
    RETRY = "retry"
    REQUEUE = "requeue"
    REORDER = "change the priority of"
    CHANGE = "change the title or time of"


#: What operators may do with anybody's tasks.
_OPERATORS = frozenset({Deed.CANCEL, Deed.RETRY, Deed.REQUEUE, Deed.REORDER})
#: What begins something new, and so is for those only who may use the instance.
_BEGINNINGS = frozenset({Deed.RETRY, Deed.REQUEUE, Deed.CHANGE})


def master(uid: int) -> Caller:
    """Who opened his own instance: all of it is his."""
    return Caller(name=user_name(uid), uid=uid, is_user=True, is_operator=True, is_admin=True)


def caller_of(uid: int, config: Config) -> Caller:
    """What the settings of the system's instance make of a user."""
    name = user_name(uid)
    is_admin = uid == 0 or is_among(name, config.admins)
    return Caller(
        name=name,
        uid=uid,
        is_user=uid != 0 and is_among(name, config.users.allow),
        is_operator=is_admin or is_among(name, config.operators),
        is_admin=is_admin,
    )


# ---------------------------------------------------------------------- tasks


def sees(caller: Caller, user: str, project: str, projects: Mapping[str, Project]) -> bool:
    """Whether all of a task is for this caller's eyes."""
    return caller.is_admin or user == caller.name or is_member(caller.name, project, projects)


def is_member(name: str, project: str, projects: Mapping[str, Project]) -> bool:
    """Whether a project is shared with this user."""
    settings = projects.get(project)
    return settings is not None and settings.members is not None and is_among(name, settings.members)


def check_deed(caller: Caller, deed: Deed, task_id: str, user: str) -> None:
    """Refuse what a caller may not do with a task."""
    if caller.is_admin or (caller.is_operator and deed in _OPERATORS):
        return
    if user != caller.name:
        who = "its owner, an operator or an admin" if deed in _OPERATORS else "its owner or an admin"
        raise ForbiddenError(f"task {task_id} is {user}'s: only {who} may {deed} it.")
    if deed in _BEGINNINGS:
        check_user(caller)


def check_user(caller: Caller) -> None:
    """Refuse somebody who may look, but not use the instance."""
    if not caller.is_user:
        raise ForbiddenError(_not_allowed(caller.name))


# ---------------------------------------------------------------------- scopes and locks


def check_pause(caller: Caller, scope: str) -> None:
    """Refuse to pause for others."""
    _check_users(caller, scope, f"pause or resume {scope}")


def check_resume(caller: Caller, scope: str, paused_by: str | None) -> None:
    """Refuse to resume for others, or what somebody else has paused."""
    check_pause(caller, scope)
    if paused_by not in (None, caller.name) and not caller.is_operator:
        raise ForbiddenError(f"{scope} was paused by {paused_by}: only an operator or an admin may resume it.")


def check_lock(caller: Caller, name: str, what: str) -> None:
    """Refuse to hold or release somebody else's lock."""
    _check_users(caller, name, f"{what} the lock {name}")


def check_force(caller: Caller) -> None:
    """Refuse to free a lock against the evidence."""
    if not caller.is_operator:
        raise ForbiddenError("only an operator or an admin may release a lock by force.")


def _check_users(caller: Caller, scope: str, what: str) -> None:
    if caller.is_operator:
        return
    if scope != f"user:{caller.name}":
        raise ForbiddenError(f"only an operator or an admin may {what}; yours is user:{caller.name}.")
    check_user(caller)


# ---------------------------------------------------------------------- submitting


def check_submitter(name: str, config: Config) -> None:
    """Refuse tasks of those who may not have any."""
    if is_root(name):
        raise ForbiddenError(f"{name} cannot submit tasks: agents never run as root; submit as an ordinary user.")
    if not is_among(name, config.users.allow):
        raise ForbiddenError(_not_allowed(name))


def check_member(name: str, project: str, config: Config) -> None:
    """Refuse a task in a project that is shared among others."""
    settings = config.projects.get(project)
    if settings is not None and settings.members is not None and not is_among(name, settings.members):
        raise ForbiddenError(
            f"project {project} is for its members, and {name} is none: `projects.{project}.members` has to name him."
        )


def _not_allowed(name: str) -> str:
    return f"{name} may not use this queue: `users.allow` has to name him, or a group of his; ask an administrator."
