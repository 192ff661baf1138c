"""Admission: from a claimed file to a task, once, whatever dies on the way."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import apsw
import pytest
from msgspec.structs import replace
from tests.queue.driver import NOW
from tests.queue.places import CONFIG, Place

from fairlead.base.identity import user_name
from fairlead.base.ids import bucket, created_at, new_id
from fairlead.config.schema import Limits
from fairlead.queue import admit
from fairlead.queue.states import Status

ME = user_name(os.getuid())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def error_of(place: Place, name: str) -> str:
    return Path(place.paths.rejected, f"{name}.error").read_text()


# ---------------------------------------------------------------------- the good way


def test_a_file_becomes_a_task(place: Place) -> None:
    """It is queued with what the file says, and the file is kept among the accepted, under the task's id."""
    place.drop("hello.yaml", "prompt: echo hi\npriority: high")
    [file] = place.take()
    result = place.admission.admit([file])
    assert [(one.id, one.new) for one in result.admitted] == [(file.id, True)]
    task = place.store.get(file.id)
    assert (task.spec.prompt, task.spec.user, task.spec.source) == ("echo hi", "alice", "hello.yaml")
    assert (task.status, task.priority) == (Status.QUEUED, "high")
    assert place.accepted() == {file.id: "prompt: echo hi\npriority: high"}
    path = place.admission.accepted.path(file.id, file.owner, "hello.yaml")
    assert path.endswith(f"/{bucket(file.id)}/{file.id}@{ME}.yaml")
    assert (place.intake(), place.rejected()) == ([], [])
    assert place.log.of("queued") == [{"task": file.id, "user": "alice", "project": "default", "source": "hello.yaml"}]


def test_a_claim_is_a_rename_that_one_wins(place: Place) -> None:
    """The file leaves the spool under its new id; whoever comes second finds nothing."""
    place.drop("a.yaml")
    first = place.admission.claim("a.yaml")
    assert first
    assert place.admission.claim("a.yaml") is None
    assert place.intake() == [f"{first.id}@{ME}@a.yaml"]
    assert place.admission.claimed() == [first]


def test_a_task_was_made_when_its_file_was_claimed(place: Place) -> None:
    """Its id says when, however late it is admitted; an id that says nothing means now."""
    place.drop("a.yaml")
    [file] = place.take()
    place.admission.admit([file])
    assert place.store.get(file.id).created_at == created_at(file.id, 0)
    assert created_at(new_id(NOW), 0) == NOW
    assert [created_at(odd, 7) for odd in ("my-own-id", "", "20279999-080000000-x", "20270115-080000abc-x")] == [7] * 4


def test_a_batch_is_one_commit(place: Place) -> None:
    """However many files come together, the store syncs once for all of them."""
    for number in range(20):
        place.drop(f"{number}.yaml")
    files = place.take()
    commits: list[str] = []
    place.store.db._handle.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: commits.append(event["sql"]))
    assert len(place.admission.admit(files).admitted) == 20
    assert commits.count("COMMIT") == 1


def test_nothing_is_nothing(place: Place) -> None:
    """An empty batch changes nothing."""
    assert place.admission.admit([]) == admit.Result()


def test_what_the_submitter_should_know_is_passed_on(place: Place) -> None:
    """A date without a zone is read in the host's, and a note says so."""
    place.drop("a.yaml", "prompt: x\nrun_at: 2030-01-01 12:00")
    [file] = place.take()
    [(task_id, note)] = place.admission.admit([file]).notes
    assert task_id == file.id
    assert "run_at" in note


def test_an_operators_critical_task_is_express(place: Place) -> None:
    """Only critical, and only his."""
    place.admission.config = replace(CONFIG, operators=("olga",))
    for name, user, priority in (("a", "olga", "critical"), ("b", "olga", "high"), ("c", "bob", "critical")):
        place.drop(f"{name}.json", json.dumps({"prompt": "x", "user": user, "priority": priority}))
    ids = {file.name: file.id for file in place.take()}
    place.admission.admit(place.admission.claimed())
    heads = {
        head.task_id: head.express
        for user in ("olga", "bob")
        for lane in place.store.candidate(user).lanes
        for head in lane.heads
    }
    assert heads == {ids["a.json"]: True, ids["b.json"]: False, ids["c.json"]: False}


def test_a_task_without_a_user_is_its_files_owners(place: Place) -> None:
    """The kernel says whose it is when it is taken; an owner without a name is named by his number."""
    place.admission.config = replace(CONFIG, default_user=None)
    place.drop("a.yaml")
    place.drop("b.yaml")
    if os.getuid() == 0:
        os.chown(os.path.join(place.paths.spool, "b.yaml"), 54321, 0)
    files = place.take()
    assert [file.owner for file in files] == [ME, "uid-54321" if os.getuid() == 0 else ME]
    place.admission.admit(place.admission.claimed())  # as a successor reads it back
    for file in files:
        spec = place.store.get(file.id).spec
        assert (spec.user, spec.submitter) == (file.owner, file.owner)


# ---------------------------------------------------------------------- durable before acknowledged


def _calls(work: Callable[[], object]) -> list[str]:
    """What is synced, committed and renamed, in order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, called: object) -> None:
        name = getattr(called, "__name__", "")
        if event == "call" and frame.f_code.co_name in ("sync_file_system", "add"):
            calls.append(frame.f_code.co_name)
        if event == "c_call" and name == "fsync":
            calls.append("fsync folder" if stat.S_ISDIR(os.fstat(frame.f_locals["fd"]).st_mode) else "fsync file")
        if event == "c_call" and name == "rename":
            calls.append("rename")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("count", [1, admit.MANY - 1, admit.MANY])
def test_files_are_durable_before_they_are_acknowledged(place: Place, count: int) -> None:
    """Content and names are synced before the commit, the move to accepted/ comes after it."""
    for number in range(count):
        place.drop(f"{number}.yaml")
    files = place.take()
    calls = _calls(lambda: place.admission.admit(files))
    commit = calls.index("add")
    synced = ["sync_file_system"] if count >= admit.MANY else ["fsync file"] * count
    assert calls[:commit] == [*synced, "fsync folder"]
    assert calls.count("rename") == calls[commit:].count("rename") == count


# ---------------------------------------------------------------------- refusals


def test_a_bad_file_is_refused_once_with_a_reason(place: Place) -> None:
    """It lies in rejected/ beside a note that says what and where; the good ones of the batch are taken in."""
    place.drop("bad.yaml", "prompt: x\nprioritty: high\n")
    place.drop("good.yaml")
    result = place.admission.admit(place.take())
    assert len(result.admitted) == 1
    [rejected] = result.rejected
    assert rejected.path == os.path.join(place.paths.rejected, "bad.yaml")
    assert place.rejected() == ["bad.yaml", "bad.yaml.error"]
    assert "line 2" in error_of(place, "bad.yaml")
    assert "did you mean" in error_of(place, "bad.yaml")
    assert error_of(place, "bad.yaml").endswith("Correct the file, then move it back into the spool.\n")
    assert [event.event for event in place.store.events()] == ["queued", "rejected"]
    assert place.admission.claimed() == []


def test_refused_files_of_one_name_are_all_kept(place: Place) -> None:
    """The second one gets its id before the name."""
    for number in range(3):
        place.drop("bad.yaml", f"nr{number}: x")
        place.admission.admit(place.take())
    kept = [name for name in place.rejected() if not name.endswith(".error")]
    assert {Path(place.paths.rejected, name).read_text() for name in kept} == {"nr0: x", "nr1: x", "nr2: x"}
    assert all(os.path.exists(os.path.join(place.paths.rejected, f"{name}.error")) for name in kept)
    assert all(name.endswith("bad.yaml") for name in kept)


def test_a_note_never_replaces_somebodys_file(place: Place) -> None:
    """A refused file that is itself called NAME.error stays when NAME is refused, too, in either order."""
    for name in ("b.yaml.error", "b.yaml", "c.yaml", "c.yaml.error"):
        place.drop(name, f"I am {name}")
        place.admission.admit(place.take())
    contents = [Path(place.paths.rejected, name).read_text() for name in place.rejected()]
    for name in ("b.yaml.error", "b.yaml", "c.yaml", "c.yaml.error"):
        assert f"I am {name}" in contents
    assert len(contents) == 8


def test_a_corrected_file_replaces_its_old_note(place: Place) -> None:
    """Who moved a file back and got it refused again finds one note, the new one."""
    place.drop("bad.yaml", "one: x")
    place.admission.admit(place.take())
    Path(place.paths.rejected, "bad.yaml").unlink()
    place.drop("bad.yaml", "two: x")
    place.admission.admit(place.take())
    assert place.rejected() == ["bad.yaml", "bad.yaml.error"]
    assert "two" in error_of(place, "bad.yaml")


LONG = "x" * 250 + ".yaml"
ODD_NAMES: list[str | bytes] = [
    "new\nline.yaml",
    "\x1b[31mred.yaml",
    "tab\there.yaml",
    " .yaml ",
    "@.yaml",
    "a@b@c.yaml",
    "-rf.yaml",
    "%s{0}.yaml",
    b"\xff\xfe.yaml",
    "\u202eright to left.yaml",
    LONG,
    "😀" * 62 + ".yaml",
    b"\xe4" * 250 + b".yaml",
]


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_any_name_that_a_file_can_have(place: Place, name: str | bytes, good: bool) -> None:  # noqa: FBT001
    """Whatever bytes it is made of: the file is taken in or refused with a note, and logs and events stay readable."""
    place.drop(name, "prompt: echo hello" if good else "nonsense: 1")
    [file] = place.take()
    assert len(os.path.basename(os.fsencode(file.path))) <= 255
    [found] = place.admission.claimed()
    result = place.admission.admit([found])
    if good and not found.name.endswith(" "):
        assert place.accepted() == {file.id: "prompt: echo hello"}
        assert place.store.get(file.id).spec.source.isprintable()
    else:
        [rejected] = result.rejected
        assert Path(rejected.path).read_text() in ("prompt: echo hello", "nonsense: 1")
        note = Path(rejected.path + ".error").read_text()
        assert all(char.isprintable() or char == "\n" for char in note)
    for event in place.store.events():
        assert json.dumps(event.detail).encode()
    assert place.intake() == []


def test_a_name_beyond_measure_keeps_its_end(place: Place) -> None:
    """Where the id does not fit before the name, the name's beginning goes: its end says how to read it."""
    place.drop(LONG)
    [file] = place.take()
    assert os.path.basename(file.path).endswith("xxx.yaml")
    place.admission.admit(place.admission.claimed())
    assert list(place.accepted()) == [file.id]


@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "hard link"])
def test_what_is_no_plain_file_is_refused(place: Place, kind: str) -> None:
    """It is moved aside with a reason, and nobody waits for it."""
    path, other = Path(place.paths.spool, "odd.yaml"), Path(place.paths.home, "other")
    other.write_text("prompt: x")
    match kind:
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to(other)
        case "fifo":
            os.mkfifo(path)
        case _:
            path.hardlink_to(other)
    place.admission.admit(place.take())
    assert place.rejected() == ["odd.yaml", "odd.yaml.error"]
    assert place.store.count_active() == 0
    assert other.read_text() == "prompt: x"


def test_a_file_that_is_too_large_is_refused(place: Place) -> None:
    """Its size and the limit are named."""
    place.admission.config = replace(CONFIG, limits=Limits(task_file_bytes=100))
    place.drop("big.yaml", "prompt: " + "x" * 100)
    place.admission.admit(place.take())
    assert "it has 108 bytes; at most 100 are allowed" in error_of(place, "big.yaml")


def test_too_many_waiting_are_refused_and_kept(place: Place) -> None:
    """At the maximum the file goes to rejected/ with the reason; below it, a warning comes from its number on."""
    place.admission.config = replace(CONFIG, limits=Limits(pending_warn=2, pending_max=3))
    for number in range(5):
        place.drop(f"{number}.yaml")
        place.admission.admit(place.take())
    assert len(place.accepted()) == 3
    assert place.rejected() == ["3.yaml", "3.yaml.error", "4.yaml", "4.yaml.error"]
    assert "limits.pending_max is 3" in error_of(place, "3.yaml")
    assert ["has 2 tasks" in one["warning"] for one in place.log.of("many_pending")] == [True, False]
