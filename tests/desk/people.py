"""Those who come to the desk, and the tasks that they ask about."""

from typing import Any

from fairlead.desk.desk import Desk
from fairlead.queue.instance import Instance
from fairlead.queue.operations import Submitting
from fairlead.queue.rights import Caller

SETTINGS: dict[str, Any] = {
    "users": {"allow": ["ann", "bob", "mel", "olga"]},
    "operators": ["olga"],
    "admins": ["ada"],
    "projects": {"shared": {"path": "/srv", "members": ["ann", "mel"]}, "plain": {"path": "/srv"}},
}
PEOPLE = {
    "owner": Caller(name="ann", uid=1, is_user=True),
    "member": Caller(name="mel", uid=2, is_user=True),
    "other": Caller(name="bob", uid=3, is_user=True),
    "operator": Caller(name="olga", uid=4, is_user=True, is_operator=True),
    "admin": Caller(name="ada", uid=5, is_operator=True, is_admin=True),
    "stranger": Caller(name="eve", uid=6),
    # Once a user, whose tasks are still there.
    "former owner": Caller(name="ann", uid=1),
}


class System:
    """The system's instance, and its desk for everybody."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def desk(self, who: str) -> Desk:
        return Desk(self.instance, PEOPLE[who])

    def task(self, owner: str = "ann", **fields: str) -> str:
        """The id of a task in the shared project, unless the fields say otherwise."""
        text = "\n".join(
            f"{key}: {value}" for key, value in ({"prompt": "secret", "project": "shared"} | fields).items()
        ).encode()
        [done] = Submitting(self.instance, owner).submit([("task.yaml", text)])
        return done.id
