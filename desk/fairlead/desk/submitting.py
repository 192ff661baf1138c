"""Submitting: several files, all or none; or only saying what would happen."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlead.base.errors import UsageError
from fairlead.base.ids import new_id
from fairlead.config.places import directory_of
from fairlead.desk.parts import Data, DeskPart
from fairlead.queue.decide import Reason
from fairlead.queue.operations import Submitted, Submitting, check_submission
from fairlead.queue.record import spec_record
from fairlead.queue.rights import ForbiddenError
from fairlead.queue.states import Status
from fairlead.queue.task import Spec, Task
from fairlead.queue.taskfile import Parsed, TaskFileError
from fairlead.queue.why import Why


class File(NamedTuple):
    """A task file by name and content; `made` if options made it."""

    name: str
    data: bytes
    made: bool = False


class SubmittingFiles(DeskPart):
    """submit, foretell."""

    def submit(self, files: Sequence[File]) -> list[Data]:
        """Take all files in, durably when this returns, or none of them."""
        submitting = Submitting(self.office, self.caller.name)
        check_files(files, submitting.check)
        done = submitting.submit([(file.name, file.data) for file in files])
        return [told(file, one) for file, one in zip(files, done, strict=True)]

    def foretell(self, files: Sequence[File]) -> list[Data]:
        """What would become of each file."""
        return [self._prospect(file, one) for file, one in zip(files, check_files(files, self._check), strict=True)]

    def _check(self, name: str, data: bytes) -> Parsed:
        office = self.office
        return check_submission(name, data, self.caller.name, office.config, office.paths, office.clock.wall_ms())

    def _prospect(self, file: File, one: Parsed) -> Data:
        directory = directory_of(one.spec.project, self.office.config, self.office.paths, one.spec.user)
        prospect = prospect_of(one.spec, Why(self.office.paths, self.office.store, self.office.clock))
        return foretold(file, one, directory, prospect)


def told(file: File, one: Submitted) -> Data:
    """What is said of a file that was submitted."""
    notes = list(one.notes)
    return {"id": one.id, "file": file.name, "spooled": one.spooled, "notes": notes, "warning": one.warning}


def foretold(file: File, one: Parsed, directory: str, prospect: str) -> Data:
    """What is said of a file that was not submitted."""
    more = {"directory": directory, "notes": list(one.notes), "prospect": prospect}
    return {"file": file.name} | spec_record(one.spec) | more


def prospect_of(spec: Spec, why: Why) -> str:
    """What would keep a task from starting at once, if it were queued now."""
    now = why.clock.wall_ms()
    task = Task(id=new_id(now), seq=1 << 62, spec=spec, status=Status.QUEUED, version=1, created_at=now, updated_at=now)
    # A user without due tasks is told to have none: that is no obstacle, since this would be one.
    obstacles = why.answer(task).obstacles
    real = [one.detail for one in obstacles if spec.run_at or one.reason is not Reason.NOT_DUE]
    return f"would wait: {real[0]}" if real else "would start at once"


def check_files(files: Sequence[File], check: Callable[[str, bytes], Parsed]) -> list[Parsed]:
    """Read every file as intake would; raises with all that is wrong in any of them."""
    parsed, wrong = [], []
    for file in files:
        try:
            parsed.append(_check_one(file, check))
        except ForbiddenError as error:
            if len(files) == 1:
                raise
            wrong.append(f"{file.name}: {error}")
        except UsageError as error:
            wrong.append(str(error))
    if wrong and len(files) > 1:
        wrong.append("nothing was submitted.")
    if wrong:
        raise UsageError("\n".join(wrong))
    return parsed


def _check_one(file: File, check: Callable[[str, bytes], Parsed]) -> Parsed:
    """What options say is refused without a file's name and line, which nobody wrote."""
    try:
        return check(file.name, file.data)
    except TaskFileError as error:
        if file.made:
            raise UsageError(error.without_place) from error
        raise
