"""The accepted files: what was asked, kept as a file until the task is archived, so that the queue can be rebuilt."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from fairlead.base.files import make_directory, names_in, remove_all, write_durably
from fairlead.base.ids import bucket, check_id
from fairlead.queue.taskfile import FORMATS

#: A task that was changed or retried: its record replaces the file it came as.
RECORD = ".task"


class Accepted:
    """The folder `accepted/`, with one folder per hour in it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def put_record(self, record: dict[str, Any]) -> None:
        """Write down durably how a task is to be run from now on."""
        path = self._path(record["id"], RECORD)
        make_directory(os.path.dirname(path))
        write_durably(path, msgspec.json.encode(record))

    def remove(self, task_id: str) -> None:
        """The task is archived: its files have done their service."""
        remove_all(self._path(task_id, ending) for ending in (*FORMATS, RECORD))

    def files(self) -> Iterator[tuple[str, str]]:
        """Every accepted file as (task id, path), oldest hour first."""
        for folder in names_in(self.directory):
            for name in names_in(os.path.join(self.directory, folder)):
                if not name.startswith("."):
                    yield os.path.splitext(name)[0], os.path.join(self.directory, folder, name)

    def remove_empty_folders(self) -> None:
        """Folders of hours whose tasks are all archived."""
        for folder in names_in(self.directory):
            with suppress(OSError):  # not empty, or being filled
                os.rmdir(os.path.join(self.directory, folder))

    def _path(self, task_id: str, ending: str) -> str:
        return os.path.join(self.directory, bucket(check_id(task_id)), task_id + ending)
