"""The accepted files: kept until the task is archived, then removed by name."""

from collections.abc import Iterator
from pathlib import Path

from fairlead.base.ids import bucket, new_id
from fairlead.queue.accepted import Accepted
from fairlead.queue.states import Status
from fairlead.queue.task import Spec, Task


class Unlisted(Accepted):
    """One whose records are too many to be looked through."""

    def records(self) -> Iterator[tuple[str, int, str]]:
        raise AssertionError("all records were listed")


def test_the_files_of_an_archived_task_are_removed_by_name(tmp_path: Path) -> None:
    """Its records up to that version go, later ones and those of others stay, and nobody lists them all."""
    first, second = new_id(1), new_id(2)
    accepted = Unlisted(str(tmp_path))
    for task_id, version in ((first, 2), (first, 5), (first, 6), (second, 2)):
        accepted.put_record({"id": task_id, "version": version})
    folder = tmp_path / bucket(first)
    folder.mkdir()
    for name in (f"{first}@ann.yaml", f"{first}@bob.yaml", f"{second}@ann.json"):
        (folder / name).touch()
    spec = Spec(user="x", project="p", agent="a", action="a", submitter="ann")
    accepted.remove(
        Task(id=first, seq=1, spec=spec, status=Status.FAILED, version=5, created_at=1, updated_at=1, attempt=1)
    )
    assert sorted(one.name for one in folder.iterdir()) == [f"{first}@bob.yaml", f"{second}@ann.json"]
    left = sorted(path.name for path in Path(accepted.changed).iterdir())
    assert left == [f"{first}.6.json", f"{second}.2.json"]
