"""Admission twice, by two at once, with trouble, and with death at any step: each file once, none lost."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.queue.driver import NOW
from tests.queue.places import Place
from tests.support.kernel_errors import KNOWN
from tests.support.patience import stays
from tests.support.programs import ROOT, command, run, started

from fairlead.base.ids import new_id
from fairlead.queue import admit
from fairlead.queue.admit import Claimed
from fairlead.queue.errors import StoreBusyError
from fairlead.queue.sqlite import connection


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


# ---------------------------------------------------------------------- again, and at the same time


def test_admitting_again_is_a_no_op(place: Place) -> None:
    """A file that comes twice is one task, and ends up in its one place."""
    place.drop("a.yaml")
    [file] = place.take()
    place.admission.admit([file])
    os.rename(place.admission.accepted.path(file.id, file.owner, file.name), file.path)  # as if the move had been lost
    [admitted] = place.admission.admit(place.admission.claimed()).admitted
    assert not admitted.new
    assert list(place.accepted()) == [file.id]
    assert [event.event for event in place.store.events()] == ["queued"]
    assert len(place.log.of("queued")) == 1


def test_a_file_that_somebody_else_admitted_is_left_alone(place: Place) -> None:
    """Between the look and the reading it may be gone."""
    place.drop("a.yaml")
    files = place.take()
    place.admission.admit(files)
    assert place.admission.admit(files) == admit.Result()


class Meanwhile(Place):
    """A place where another process does the same work in between."""

    def at(self, step: str, other: Callable[[], object]) -> None:
        """Let the other process work just before a step of ours."""
        original = getattr(self.admission, step)

        def interrupted(*arguments: object) -> object:
            setattr(self.admission, step, original)
            other()
            return original(*arguments)

        setattr(self.admission, step, interrupted)


@pytest.mark.parametrize("step", ["_make_durable", "_enter", "_accept"])
def test_two_admit_the_same_file(tmp_path: Path, step: str) -> None:
    """Wherever the other is faster, there is one task and one accepted file."""
    place = Meanwhile(tmp_path)
    place.drop("a.yaml")
    files = place.take()
    place.at(step, lambda: Place(tmp_path).admission.admit(files))
    place.admission.admit(files)
    assert list(place.accepted()) == [files[0].id]
    assert [event.event for event in place.store.events()] == ["queued"]
    assert place.intake() == []


def test_two_refuse_the_same_file(tmp_path: Path) -> None:
    """If the other is faster, there is one refused file and one note, and only he tells of it."""
    place = Meanwhile(tmp_path)
    place.drop("bad.yaml", "nonsense: 1")
    files = place.take()
    place.at("_reject", lambda: Place(tmp_path).admission.admit(files))
    assert place.admission.admit(files) == admit.Result()
    assert place.rejected() == ["bad.yaml", "bad.yaml.error"]
    assert [event.event for event in place.store.events()] == ["rejected"]


def test_two_refuse_files_of_the_same_name_at_once(place: Place) -> None:
    """Who comes second waits while the first has chosen a name and not used it yet: neither file is lost."""
    with (
        started("queue", "refuse_slowly", place.paths.home, "first") as first,
        subprocess.Popen(command("queue", "refuse_one", place.paths.home, "second"), cwd=ROOT) as second,
    ):
        stays(lambda: second.poll() is None, "the second one waits", 1.0)
        assert first.stdin
        first.stdin.close()
        assert (first.wait(), second.wait()) == (0, 0)
    contents = [Path(place.paths.rejected, name).read_text() for name in place.rejected()]
    assert sorted(text for text in contents if text.startswith("nonsense")) == ["nonsense: first", "nonsense: second"]
    assert len(contents) == 4


# ---------------------------------------------------------------------- trouble


def test_while_the_store_is_busy_files_wait(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost and nothing refused: they are admitted when it is free again."""
    monkeypatch.setattr(connection, "BUSY_MS", 20)
    impatient = Place(place.paths.home)
    place.drop("a.yaml")
    files = place.take()
    with place.store.db.transaction(), pytest.raises(StoreBusyError):
        impatient.admission.admit(files)
    assert (place.rejected(), place.accepted()) == ([], {})
    assert len(place.admission.admit(place.admission.claimed()).admitted) == 1


def test_a_tidied_up_spool_is_no_trouble(place: Place) -> None:
    """Somebody removed everything from the spool, our folders too: files are taken in and refused all the same."""
    os.rmdir(place.paths.intake)
    os.rmdir(place.paths.rejected)
    assert place.admission.claimed() == []
    place.drop("bad.yaml", "nonsense: 1")
    place.drop("good.yaml")
    result = place.admission.admit(place.take("bad.yaml", "good.yaml"))
    assert (len(result.admitted), len(result.rejected)) == (1, 1)
    assert place.rejected() == ["bad.yaml", "bad.yaml.error"]


def test_a_refusal_that_fails_keeps_nobody(place: Place) -> None:
    """The good files are taken in, the bad ones stay where they are with a word in the log, and are refused later."""
    os.rmdir(place.paths.rejected)
    Path(place.paths.rejected).touch()
    for name in ("bad.yaml", "worse.yaml"):
        place.drop(name, "nonsense: 1")
    place.drop("good.yaml")
    with pytest.raises(admit.CannotRejectError, match=r"(?s)bad\.yaml: .*stays at .*worse\.yaml: "):
        place.admission.admit(place.take())
    assert [said["file"] for said in place.log.of("cannot_reject")] == ["bad.yaml", "worse.yaml"]
    assert (len(place.accepted()), len(place.intake())) == (1, 2)
    os.unlink(place.paths.rejected)
    place.admission.admit(place.admission.claimed())
    assert place.rejected() == ["bad.yaml", "bad.yaml.error", "worse.yaml", "worse.yaml.error"]
    assert place.intake() == []


@pytest.mark.skipif(not KNOWN, reason="the numbers of this machine's system calls are not known")
def test_a_file_that_cannot_be_taken_keeps_nobody(place: Place) -> None:
    """One whose name cannot be moved is told about, and left."""
    Path(place.paths.spool, "mount.yaml").mkdir()
    place.drop("a.yaml")
    said = run("queue", "claim_immovable", place.paths.home, "mount.yaml").split()
    assert said == ["None", "cannot_take_in"]
    assert [file.name for file in place.take("a.yaml")] == ["a.yaml"]


def test_strangers_in_the_intake_are_left_alone(place: Place) -> None:
    """Only what has an id and an owner before its name was claimed."""
    for name in ("no-separator", f"{new_id(NOW)}@no-owner.yaml", "NOT AN ID@x.yaml", ".hidden", "@x.yaml"):
        Path(place.paths.intake, name).write_text("prompt: x")
    assert place.admission.claimed() == []


def test_an_unnamed_file_is_refused_under_some_name(place: Place) -> None:
    """Nothing behind the separator is a name, too."""
    path = Path(place.paths.intake, f"{new_id(NOW)}@ann@")
    path.write_text("prompt: x")
    [file] = place.admission.claimed()
    assert file == Claimed(id=file.id, path=str(path), owner="ann", name="")
    place.admission.admit([file])
    assert place.rejected() == ["unnamed", "unnamed.error"]


# ---------------------------------------------------------------------- death


@pytest.mark.parametrize("files", ["good.yaml", "bad.yaml", "good.yaml,bad.yaml,other.json"])
def test_death_at_any_step(tmp_path: Path, files: str) -> None:
    """Killed before any of its system calls, an admission is finished by the next one: each file once, none lost."""
    lines = run("queue", "die_admitting", tmp_path, files).splitlines()
    assert lines[-1] == "survived"
    wrong = [line for line in lines[:-1] if not line.endswith("fine")]
    assert wrong == []
    assert len(lines) > 8
