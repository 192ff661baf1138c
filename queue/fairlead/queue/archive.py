"""The archive: one JSON file per finished task, durable before the live entry may go."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fairlead.base.files import (
    folders_in,
    make_directory,
    names_in,
    read_json,
    sync_file_system,
    write_atomically,
    write_durably,
)
from fairlead.base.ids import check_id, month
from fairlead.queue.record import record_of
from fairlead.queue.store import Store
from fairlead.queue.task import Task

#: From this many files on, one syncfs is cheaper than two fsyncs each.
MANY = 4


class Archive:
    """The records of finished tasks, in one folder per month."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def path(self, task_id: str) -> str:
        """Where a task's record is, or will be."""
        return os.path.join(self.directory, month(check_id(task_id)), f"{task_id}.json")

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the records and return once a power cut cannot take them back."""
        many = len(records) >= MANY
        write = write_atomically if many else write_durably
        for record in records:
            path = self.path(record["id"])
            make_directory(os.path.dirname(path))
            write(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        if many:
            sync_file_system(self.directory)

    def read(self, task_id: str) -> dict[str, Any] | None:
        """A task's record, if it is archived."""
        try:
            record: dict[str, Any] = read_json(self.path(task_id))
        except FileNotFoundError:
            return None
        return record

    def ids(self) -> Iterator[str]:
        """The ids of all archived tasks, oldest first."""
        for folder in folders_in(self.directory):
            for name in names_in(folder):
                if name.endswith(".json") and not name.startswith("."):
                    yield name.removesuffix(".json")

    def find(self, part: str) -> list[str]:
        """The ids that begin with this, or whose tail does."""
        return [one for one in self.ids() if one.startswith(part) or one[19:].startswith(part)]


def archive_tasks(store: Store, archive: Archive, tasks: Sequence[Task]) -> None:
    """Write finished tasks down durably, then mark them; one that is retried meanwhile stays unmarked."""
    if not tasks:
        return
    archive.write([record_of(task, store.attempts(task.id), store.events(task_id=task.id)) for task in tasks])
    store.mark_archived({task.id: task.version for task in tasks})
