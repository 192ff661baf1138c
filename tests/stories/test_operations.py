"""What people may ask for: submit, cancel, retry, change, pause, find; and what is refused, with a sentence."""

import json
import os
import resource
from pathlib import Path

import pytest
from tests.support.crashing import crash
from tests.support.instance import Home

from fairlead.base.errors import RefusedError, UsageError
from fairlead.queue import operations
from fairlead.queue.accepted import Accepted
from fairlead.queue.admit import Claimed, claimed_path
from fairlead.queue.archive import Archive
from fairlead.queue.errors import NoSuchTaskError, StaleVersionError, StoreBusyError
from fairlead.queue.operations import Submitting, check_scope, find_task
from fairlead.queue.record import record_of, spec_record, task_of
from fairlead.queue.states import IllegalTransitionError, Status
from fairlead.queue.task import Changes
from fairlead.watchdog.retention import DAY_MS, Retention

FILE = [("task.json", b'{"prompt": "true", "user": "ann"}')]


def submitting(home: Home) -> Submitting:
    """A submitter."""
    return Submitting(home.open(), "ann")


# ---------------------------------------------------------------------- submitting


def test_wrong_files_are_refused_before_anything_happens(home: Home) -> None:
    """One wrong file among good ones: none is taken in, and the sentence names it."""
    home.configure(limits={"task_file_bytes": 50})
    submitter = submitting(home)
    with pytest.raises(UsageError, match=r"bad\.json"):
        submitter.submit([*FILE, ("bad.json", b"{")])
    with pytest.raises(UsageError, match="it has 60 bytes; at most 50"):
        submitter.submit([*FILE, ("big.json", b" " * 60)])
    assert home.tasks() == []
    assert os.listdir(home.paths.intake) == []


def test_too_many_waiting_tasks_are_refused(home: Home) -> None:
    """The user's limit is told, and nothing is left of the file; below it there is a warning."""
    home.configure(limits={"pending_max": 2, "pending_warn": 2})
    submitter = submitting(home)
    submitter.submit(FILE)
    [warned] = submitter.submit(FILE)
    assert "2 tasks waiting" in warned.warning
    with pytest.raises(RefusedError, match=r"limits\.pending_max is 2"):
        submitter.submit(FILE)
    assert (os.listdir(home.paths.intake), os.listdir(home.paths.rejected)) == ([], [])


def test_the_daemon_takes_nothing_from_a_submitter(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were laid down and not yet entered are left alone: else some of a submission could enter, some not."""
    home.configure(limits={"pending_max": 1})
    dispatcher, submitter = home.dispatcher(), submitting(home)
    real = submitter.admission.admit_together

    def be_late(files: list[Claimed]) -> object:
        dispatcher.look_around = True
        dispatcher.take_in_files()
        dispatcher.take_in_left_files()
        return real(files)

    monkeypatch.setattr(submitter.admission, "admit_together", be_late)
    with pytest.raises(RefusedError, match=r"0 tasks waiting, and 2 more come at once.*\nnothing was submitted\."):
        submitter.submit(FILE * 2)
    assert home.tasks() == []
    [taken] = submitter.submit(FILE)
    assert [task.id for task in home.tasks()] == [taken.id]


def test_what_cannot_all_be_laid_down_is_taken_away_again(home: Home) -> None:
    """The disk refuses the second of three files: the command fails, and nothing of it runs later."""
    home.configure(limits={"task_file_bytes": 8 << 20})
    submitter = submitting(home)
    big = ("big.json", FILE[0][1] + b" " * (4 << 20))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            submitter.submit([*FILE, big, *FILE])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(home.paths.intake) == []
    home.dispatcher().run_once()
    assert home.tasks() == []


def test_what_cannot_all_be_spooled_is_taken_away_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is away too: all files of a submission are left for intake, or none."""
    submitter = submitting(home)
    monkeypatch.setattr(submitter.admission.store, "add", _busy)
    taken = (FILE[0][0], b'{"prompt": "second"}')
    real = claimed_path
    names = iter(["one.json", "no/such/folder.json"])
    with monkeypatch.context() as patch:
        patch.setattr(
            operations, "claimed_path", lambda *known: real(known[0], known[1], known[2], next(names, "one.json"))
        )
        with pytest.raises(FileNotFoundError):
            submitter.submit([*FILE, taken])
    assert os.listdir(home.paths.intake) == []


KILLS = [
    ("fairlead.queue.operations:Submitting._lay", "after", 1, False),
    ("fairlead.queue.operations:Submitting._lay", "after", 3, False),
    ("fairlead.queue.admit:Admission._make_durable", "after", 1, False),
    ("fairlead.queue.sqlite.admission:Admission.add", "after", 1, True),
    ("fairlead.queue.admit:Admission._accept", "after", 1, True),
    ("fairlead.queue.admit:Admission._accept", "after", 3, True),
]


@pytest.mark.parametrize(("place", "when", "call", "enters"), KILLS)
def test_a_submitter_killed_at_any_step_leaves_all_or_nothing(
    home: Home, place: str, when: str, call: int, *, enters: bool
) -> None:
    """Before the commit none of three files becomes a task, after it all do, each once; no file is left lying about."""
    home.open()
    files = [Path(home.work, f"{number}.json") for number in range(3)]
    for file in files:
        file.write_text(json.dumps(home.document(home.counted())), encoding="utf-8")
    crash(home, f"submit {' '.join(map(str, files))}", place, when, call)
    for file in files:
        file.unlink()
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    home.play(lambda: all(task.archived for task in home.tasks()), dispatcher, watchdog)
    dispatcher.run_once()
    assert len(home.starts()) == len(home.tasks()) == (3 if enters else 0)
    for name in os.listdir(home.paths.intake):
        assert not enters
        os.utime(os.path.join(home.paths.intake, name), (1, 1))
    Retention(home.open()).prune()
    home.assert_tidy()


def test_a_file_that_is_laid_down_while_the_store_is_away_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The acknowledgement says so, and the daemon takes it in as soon as the store is back."""
    dispatcher, submitter = home.dispatcher(), submitting(home)
    with monkeypatch.context() as patch:
        patch.setattr(submitter.admission.store, "add", _busy)
        [waits] = submitter.submit(FILE)
    assert waits.spooled
    dispatcher.take_in_files()
    assert [task.id for task in home.tasks()] == [waits.id]
    assert [one.task_id for one in Accepted(home.paths.accepted).files()] == [waits.id]


def _busy(*_: object, **__: object) -> None:
    raise StoreBusyError


# ---------------------------------------------------------------------- retrying and changing


def test_only_what_went_wrong_can_be_retried(home: Home) -> None:
    """Neither what runs nor what completed; each refusal says why."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("until [ -e go ]; do sleep 0.02; done")
    with pytest.raises(IllegalTransitionError):
        home.operations().retry(task, by="ann")
    dispatcher.run_once()
    with pytest.raises(RefusedError, match="cancel it first, or wait for its end"):
        home.operations().retry(task, by="ann")
    Path(home.path, "go").touch()
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    with pytest.raises(IllegalTransitionError):
        home.operations().retry(task, by="ann")


def test_a_task_that_the_store_has_forgotten_comes_back_from_the_archive(home: Home) -> None:
    """Its row went with retention or with the store; its record is enough to run it again, with its history."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(f"test -e {home.work}/mended", title="forgotten")
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    assert home.store.forget(home.task(task).updated_at + 10 * DAY_MS, 10) == [task]
    with pytest.raises(NoSuchTaskError):
        home.task(task)
    found = find_task(home.store, Archive(home.paths.archive), task[-10:])
    assert (found.id, found.spec.title) == (task, "forgotten")
    with pytest.raises(NoSuchTaskError):
        home.operations().retry("20200101-000000000-aaaaaaaaaa", by="ann")
    Path(home.work, "mended").touch()
    home.operations().retry(task, by="ann")
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    assert [attempt.status for attempt in home.store.attempts(task)] == [Status.FAILED, Status.COMPLETED]


def test_a_stale_change_is_refused(home: Home) -> None:
    """Who read an older version has to read again; the record of the change is what a rebuilt store would read."""
    task = home.submit()
    home.operations().change(task, 1, Changes(title="one"), by="ann")
    with pytest.raises(StaleVersionError):
        home.operations().change(task, 1, Changes(title="two"), by="bob")
    [(_, version, path)] = Accepted(home.paths.accepted).records()
    assert version == 2
    assert json.loads(Path(path).read_text("utf-8"))["title"] == "one"


def test_express_follows_the_priority(home: Home) -> None:
    """An operator's task goes before everybody's while it is critical, however it became so; nobody else's does."""
    home.configure(operators=["olga"])
    ids = {user: home.submit(user=user) for user in ("olga", "ann")}
    for version, (priority, express) in enumerate([(0, True), (3, False), (0, True)], start=1):
        for user, task in ids.items():
            home.operations().change(task, version, Changes(priority=priority), by="ann")
            assert is_express(home, user) == (express and user == "olga")
    home.operations().change(ids["olga"], 4, Changes(title="still critical", express=False), by="ann")
    assert is_express(home, "olga")


def test_a_forgotten_express_task_comes_back_as_one(home: Home) -> None:
    """A task from the archive is retried with the rights that its user has now."""
    home.configure(operators=["olga"])
    task = home.submit(user="olga", priority="critical")
    home.operations().cancel(task, by="olga")
    assert home.store.forget(home.task(task).updated_at + 10 * DAY_MS, 10) == [task]
    home.operations().retry(task, by="olga")
    assert is_express(home, "olga")


def is_express(home: Home, user: str) -> bool:
    """Whether a user's first task goes before everybody's."""
    return home.store.candidate(user).lanes[0].heads[0].express


def test_what_is_claimed_meanwhile_needs_no_record(home: Home) -> None:
    """A change that was overtaken by a claim is in the run already."""
    dispatcher = home.dispatcher()
    task = home.submit("until [ -e go ]; do sleep 0.02; done")
    dispatcher.run_once()
    home.operations()._write_down(home.task(task))
    assert list(Accepted(home.paths.accepted).records()) == []


# ---------------------------------------------------------------------- scopes and ids


def test_scopes_are_checked(home: Home) -> None:
    """Everything, a user, a project; anything else is refused with the right way to write it."""
    assert [check_scope(one) for one in ("all", "user:ann", "project:x")] == ["all", "user:ann", "project:x"]
    for wrong in ("ann", "user", "users:ann", "user:", "user:../x", "all:x"):
        with pytest.raises(UsageError):
            check_scope(wrong)
    assert not home.operations().resume("user:ann", by="eve")


def test_tasks_are_found_by_a_part_of_their_id(home: Home) -> None:
    """By its beginning or the beginning of its tail; several are named, none is an error."""
    ids = home.submit_all([home.document(), home.document()])
    archive = Archive(home.paths.archive)
    for one in ids:
        assert find_task(home.store, archive, one).id == one
        assert find_task(home.store, archive, one[-10:]).id == one
    with pytest.raises(UsageError, match="means 2 tasks"):
        find_task(home.store, archive, ids[0][:9])
    with pytest.raises(NoSuchTaskError):
        find_task(home.store, archive, "nobody")


# ---------------------------------------------------------------------- records


def test_a_record_reads_back_as_its_task(home: Home) -> None:
    """What the archive keeps, a rebuilt store reads: nothing of the task is lost on the way."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("exit 3", run_at="2020-01-02T03:04:05Z", timeout="5m", env={"A": "b"}, artifacts=["*.txt"])
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    whole, attempts = home.task(task), home.store.attempts(task)
    back, attempts_back = task_of(json.loads(json.dumps(record_of(whole, attempts, ()))))
    assert attempts_back == attempts
    assert back == type(whole)(**{name: getattr(whole, name) for name in whole.__struct_fields__} | {"archived": False})
    readable = spec_record(whole.spec)
    assert (readable["run_at"], readable["priority"]) == ("2020-01-02T03:04:05.000+00:00", "medium")


def test_strays_beside_accepted_and_archived_files_are_passed_over(home: Home) -> None:
    """Editors and backups leave things behind: they are no tasks."""
    task = home.submit(run_at="+1d")
    accepted, archive = Accepted(home.paths.accepted), Archive(home.paths.archive)
    home.operations().change(task, 1, Changes(title="x"), by="ann")
    for path in (
        os.path.join(home.paths.accepted, task[:11], ".hidden.json"),
        os.path.join(accepted.changed, "notes.txt"),
        os.path.join(accepted.changed, f"{task}.two.json"),
        os.path.join(home.paths.archive, "2026-01", ".hidden.json"),
        os.path.join(home.paths.archive, "2026-01", "notes.txt"),
    ):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()
    assert [one.task_id for one in accepted.files()] == [task]
    assert [version for _, version, _ in accepted.records()] == [2]
    assert list(archive.ids()) == []
    assert archive.find("2026") == []
    assert Retention(home.open()).prune().deleted == {}
