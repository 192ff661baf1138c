"""The accepted files: what was asked, kept as a file until the task is archived, so that the queue can be rebuilt."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from fairlead.base.files import folders_in, make_directory, names_in, remove_all, write_durably
from fairlead.base.ids import bucket, check_id, is_id
from fairlead.queue.task import Task
from fairlead.queue.taskfile import FORMATS

#: The folder of records of tasks that were changed or retried: they replace the files the tasks came as.
CHANGED = "changed"
#: Between a task's id and who handed it in, in the names of files: neither can hold one.
SEPARATOR = "@"
#: One name for each ending that a file may have come with.
_NAMES = tuple(f"task{ending}" for ending in FORMATS)


class AcceptedFile(NamedTuple):
    """A file that a task came as, and who handed it in."""

    task_id: str
    owner: str
    path: str


class Accepted:
    """The folder `accepted/`: dropped files in one folder per hour, records of changed tasks by version."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.changed = os.path.join(directory, CHANGED)

    def put_record(self, record: dict[str, Any]) -> None:
        """Write down durably how a task is to be run from this version on."""
        make_directory(self.changed)
        write_durably(self._record_path(record["id"], record["version"]), msgspec.json.encode(record))

    def path(self, task_id: str, owner: str, name: str) -> str:
        """Where an accepted file is: in the folder of its hour, with the ending that says its format."""
        ending = os.path.splitext(name)[1].lower()
        return os.path.join(self.directory, bucket(check_id(task_id)), f"{task_id}{SEPARATOR}{owner}{ending}")

    def remove(self, task: Task) -> None:
        """The task is archived as of this version: its files have done their service. Later records stay."""
        remove_all(self.path(task.id, task.spec.submitter, ending) for ending in _NAMES)
        remove_all(self._record_path(task.id, number) for number in range(task.version + 1))

    def files(self) -> Iterator[AcceptedFile]:
        """Every dropped file, oldest hour first."""
        for folder in self._hours():
            for name in names_in(folder):
                task_id, _, owner = os.path.splitext(name)[0].partition(SEPARATOR)
                if not name.startswith("."):
                    yield AcceptedFile(task_id, owner, os.path.join(folder, name))

    def records(self) -> Iterator[tuple[str, int, str]]:
        """Every record of a changed task as (task id, version, path)."""
        for name in names_in(self.changed):
            task_id, _, version = name.removesuffix(".json").rpartition(".")
            if version.isdigit() and is_id(task_id):
                yield task_id, int(version), os.path.join(self.changed, name)

    def remove_empty_folders(self) -> None:
        """Folders of hours whose tasks are all archived."""
        for folder in self._hours():
            with suppress(OSError):  # not empty, or being filled
                os.rmdir(folder)

    def _hours(self) -> list[str]:
        return [folder for folder in folders_in(self.directory) if folder != self.changed]

    def _record_path(self, task_id: str, version: int) -> str:
        return os.path.join(self.changed, f"{check_id(task_id)}.{version}.json")
