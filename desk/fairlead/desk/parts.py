"""What the parts of the desk have in common: whose desk it is, and finding a task."""

from collections.abc import Mapping
from typing import Any

from fairlead.base.errors import UsageError
from fairlead.config.schema import Project
from fairlead.queue.archive import Archive
from fairlead.queue.office import Office
from fairlead.queue.operations import Operations, find_task
from fairlead.queue.rights import Caller, Deed, check_deed, sees
from fairlead.queue.task import Task

Data = dict[str, Any]


class DeskPart:
    """An office, and the caller who stands at its desk."""

    def __init__(self, office: Office, caller: Caller) -> None:
        self.office = office
        self.caller = caller
        self.archive = Archive(office.paths.archive)

    def task(self, part: str) -> Task:
        """The task that a part of an id means: that it is there is no secret."""
        if not part:
            raise UsageError("an empty word is no id; `fairlead list --all` shows the known ones.")
        return find_task(self.office.store, self.archive, part)

    def operations(self) -> Operations:
        """What may be changed."""
        office = self.office
        return Operations(office.paths, office.store, office.clock, office.log, lambda: office.config.operators)

    def sees(self, user: str, project: str) -> bool:
        """Whether all of such a task is for this caller's eyes."""
        return sees(self.caller, user, project, self._projects)

    @property
    def _projects(self) -> Mapping[str, Project]:
        """Settings are read for those alone whose rights depend on them."""
        return {} if self.caller.is_admin else self.office.config.projects

    def allow(self, deed: Deed, task: Task) -> Task:
        """The task, if the caller may do this with it."""
        if deed is not Deed.READ or not self.sees(task.spec.user, task.spec.project):
            check_deed(self.caller, deed, task.id, task.spec.user)
        return task
