"""What is old goes, but only what is provably safe to delete; what is kept says why."""

import json
import os
import time
from pathlib import Path

import pytest
from tests.support.instance import Home

from fairlead.conductor import rundir
from fairlead.queue.accepted import Accepted
from fairlead.queue.archive import Archive
from fairlead.queue.states import Status
from fairlead.queue.task import Task
from fairlead.watchdog import retention as module
from fairlead.watchdog.retention import Pruned, Retention

OLD = time.time() - 40 * 86400


def done(home: Home, script: str = "true", *, days: float = 40.0) -> Task:
    """A task that ended and was archived so many days ago, in its record, its row and its run directory."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit(script)
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    when = int((time.time() - days * 86400) * 1000)
    home.store.db.run("UPDATE tasks SET finished_at = :at WHERE id = :id", {"at": when, "id": task})
    change_record(home, task, finished_at=_iso(when))
    age(rundir.finished_dir(home.paths.conductor, "default", task, 1), days)
    return home.task(task)


def _iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(ms / 1000))


def age(path: str, days: float = 40.0) -> None:
    """Make a file or directory so old."""
    os.utime(path, (time.time() - days * 86400,) * 2)


def record_path(home: Home, task_id: str) -> Path:
    """A task's record in the archive."""
    return Path(Archive(home.paths.archive).path(task_id))


def change_record(home: Home, task_id: str, **changes: object) -> None:
    """Change what a record says."""
    path = record_path(home, task_id)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def rename_old(home: Home, task: Task) -> str:
    """The same record and run under an id of long ago, since ids tell when a task was made."""
    task_id = f"20200101-000000000-{task.id[-10:]}"
    change_record(home, task.id, id=task_id)
    target = record_path(home, task_id)
    target.parent.mkdir(parents=True, exist_ok=True)
    record_path(home, task.id).rename(target)
    folder = os.path.join(home.paths.conductor, "default", "finished")
    os.rename(os.path.join(folder, f"{task.id}.1"), os.path.join(folder, f"{task_id}.1"))
    for table, column in (("tasks", "id"), ("attempts", "task_id"), ("events", "task_id")):
        change = f"UPDATE {table} SET {column} = :new WHERE {column} = :old"  # noqa: S608 - our own names
        home.store.db.run(change, {"new": task_id, "old": task.id})
    return task_id


def test_everything_of_an_old_task_goes(home: Home) -> None:
    """Record, run directory, row, attempts and events; and a dry run only tells."""
    task_id = rename_old(home, done(home))
    run_dir = rundir.finished_dir(home.paths.conductor, "default", task_id, 1)
    retention = Retention(home.open())
    told = retention.prune(dry_run=True)
    assert told.deleted == {"runs": 1, "records": 1}
    assert os.path.isdir(run_dir)
    assert record_path(home, task_id).exists()
    pruned = retention.prune()
    assert pruned.deleted == {"runs": 1, "records": 1, "rows": 1}
    assert pruned.kept == []
    assert not os.path.exists(run_dir)
    assert not record_path(home, task_id).exists()
    assert home.tasks() == []
    assert home.store.events(task_id=task_id) == []
    assert retention.prune().deleted == {}
    assert home.logged("pruned")["runs"] == 1


def test_what_is_young_stays(home: Home) -> None:
    """Within its days nothing is touched, and nothing is said about it; fewer days can be asked for."""
    task_id = rename_old(home, done(home, days=10.0))
    retention = Retention(home.open())
    assert retention.prune().deleted == {}
    assert retention.prune().kept == []
    assert retention.prune(20.0).deleted == {}
    assert retention.prune(5.0).deleted == {"runs": 1, "records": 1, "rows": 1}
    assert not record_path(home, task_id).exists()


def test_records_of_new_tasks_are_not_even_read(home: Home) -> None:
    """Ids sort by time, and no task ends before it was made."""
    task = done(home)
    record_path(home, task.id).write_text("not read", "utf-8")
    report = Retention(home.open()).prune()
    assert report.kept == []


def test_a_record_stays_as_long_as_its_runs(home: Home) -> None:
    """Without it nobody could tell later that the run directories may go."""
    task_id = rename_old(home, done(home))
    run_dir = rundir.finished_dir(home.paths.conductor, "default", task_id, 1)
    age(run_dir, days=1.0)
    retention = Retention(home.open())
    assert retention.prune().deleted == {"rows": 1}
    assert record_path(home, task_id).exists()
    age(run_dir)
    assert retention.prune().deleted == {"runs": 1, "records": 1}


def test_what_cannot_be_judged_is_kept_with_a_reason(home: Home) -> None:
    """Unreadable records, runs without a record, strays: each is kept, each is named."""
    task_id = rename_old(home, done(home))
    folder = record_path(home, task_id).parent
    bad = {
        "20200101-000000000-aaaaaaaaaa": "{",
        "20200101-000000000-bbbbbbbbbb": "[]",
        "Not An Id": "{}",
    }
    for name, text in bad.items():
        (folder / f"{name}.json").write_text(text, "utf-8")
    change_record(home, task_id, finished_at=None)
    stray = os.path.join(home.paths.conductor, "default", "finished", "notes")
    os.mkdir(stray)
    age(stray)
    orphan = os.path.join(home.paths.conductor, "default", "finished", "20200101-000000000-cccccccccc.1")
    os.mkdir(orphan)
    age(orphan)
    Path(home.paths.conductor, "file").touch()
    Path(home.paths.archive, "file").touch()
    kept = dict(Retention(home.open()).prune().kept)
    assert kept.pop(task_id) == "it does not say when its task ended"
    assert kept.pop(orphan) == kept.pop(stray) == "its task has no record in the archive"
    assert sorted(kept) == sorted(bad)
    assert all(why.startswith("it cannot be read") for why in kept.values())


def test_a_task_that_came_back_keeps_its_files(home: Home) -> None:
    """A retried task's old record and old runs stay until it is archived again."""
    task_id = rename_old(home, done(home, "exit 1"))
    home.operations().retry(task_id, by="ann")
    report = Retention(home.open()).prune()
    assert report.deleted == {}
    reasons = dict(report.kept)
    assert reasons[task_id] == "its task is queued again"
    run_dir = rundir.finished_dir(home.paths.conductor, "default", task_id, 1)
    assert reasons[run_dir] == "its task is queued and not archived"


def test_a_quarantined_task_stays(home: Home) -> None:
    """Whoever has to decide about the lock will want to read what it is about."""
    task_id = rename_old(home, done(home))
    values = (task_id,)
    home.store.db.run(
        "INSERT INTO locks (name, lock_id, token, task_id, kind, state, acquired_at, expires_at, host, boot_id, pid,"
        " pid_start) VALUES ('user:ann', 'x_1', 99, ?, 'run', 'quarantined', 1, 1, 'h', 'b', 1, 1)",
        values,
    )
    Retention(home.open()).prune()
    assert home.task(task_id).status is Status.COMPLETED


def test_left_over_accepted_files_go(home: Home) -> None:
    """A crash between archive and tidying leaves the file: it has done its service. Those that wait stay."""
    task, waiting = done(home, days=1.0), home.submit(run_at="+1d")
    left = Path(home.paths.accepted, task.id[:11], f"{task.id}.json")
    left.parent.mkdir(exist_ok=True)
    left.write_text("{}", "utf-8")
    Path(home.paths.accepted, "stray").touch()
    empty = Path(home.paths.accepted, "20200101-00")
    empty.mkdir()
    accepted = Accepted(home.paths.accepted)
    accepted.put_record({"id": task.id, "version": task.version - 1})
    accepted.put_record({"id": task.id, "version": task.version + 1})
    assert Retention(home.open()).prune(dry_run=True).deleted == {"accepted": 2}
    assert left.exists()
    report = Retention(home.open()).prune()
    assert report.deleted == {"accepted": 2}
    assert [one.task_id for one in accepted.files()] == [waiting]
    assert [version for _, version, _ in accepted.records()] == [task.version + 1]
    assert not empty.exists()


def test_a_million_accepted_files_are_looked_at_in_portions(home: Home) -> None:
    """Each pruning of the watchdog looks at so many and goes on from there, round and round."""
    task, _ = done(home, days=1.0), home.submit(run_at="+1d")
    left = Path(home.paths.accepted, task.id[:11], f"{task.id}.json")
    left.parent.mkdir(exist_ok=True)
    left.write_text("{}", "utf-8")
    retention = Retention(home.open())
    rounds = [retention.prune(most=1).deleted.get("accepted", 0) for _ in range(4)]
    assert sum(rounds) == 1
    left.write_text("{}", "utf-8")
    rounds = [retention.prune(most=1).deleted.get("accepted", 0) for _ in range(4)]
    assert sum(rounds) == 1


def test_old_refused_files_logs_and_lock_files_go(home: Home) -> None:
    """By their own age; directories are people's, and the logs that are being written stay."""
    home.open()
    aside = os.path.join(home.paths.locks, "aside")
    os.mkdir(aside)
    old = [
        os.path.join(home.paths.rejected, "bad.txt"),
        os.path.join(home.paths.rejected, "bad.txt.error"),
        os.path.join(aside, "user_ann.1.lock"),
        os.path.join(home.paths.logs, "fairlead.log.3"),
    ]
    kept = [home.paths.log_file, home.paths.error_log, os.path.join(home.paths.rejected, "new.txt")]
    for path in (*old, *kept):
        Path(path).touch()
        age(path)
    age(kept[-1], days=1.0)
    folder = os.path.join(home.paths.rejected, "folder")
    os.mkdir(folder)
    age(folder)
    deleted = {"rejected": 2, "lock_files_aside": 1, "logs": 1}
    assert Retention(home.open()).prune(dry_run=True).deleted == deleted
    assert all(map(os.path.exists, old))
    report = Retention(home.open()).prune()
    assert report.deleted == deleted
    assert report.kept == [(folder, "it is a directory")]
    assert [os.path.exists(path) for path in (*old, *kept)] == [False] * 4 + [True] * 3


def test_a_file_that_goes_by_itself_is_young(home: Home) -> None:
    """Between listing and looking somebody else may have removed it: there is nothing to delete."""
    assert module._changed(str(home.path / "nowhere")) > time.time() * 1000


def test_the_watchdog_prunes_now_and_then(home: Home) -> None:
    """With its first pass and then hourly, not with each."""
    task_id = rename_old(home, done(home))
    watchdog = home.watchdog()
    watchdog.run_once()
    assert home.tasks() == []
    assert not record_path(home, task_id).exists()
    path = Path(home.paths.rejected, "bad.txt")
    path.touch()
    age(str(path))
    watchdog.run_once()
    assert path.exists()
    watchdog._prune_at = 0.0
    watchdog.run_once()
    assert not path.exists()


@pytest.mark.parametrize("words", [["--older-than", "7d"], ["--dry-run"]])
def test_the_command_prunes(home: Home, words: list[str]) -> None:
    """`fairlead prune` says what it deleted, or would."""
    task_id = rename_old(home, done(home))
    said = home.cli("prune", *words).stdout
    assert ("would delete runs: 1" if "--dry-run" in words else "deleted runs: 1") in said
    assert record_path(home, task_id).exists() == ("--dry-run" in words)


def test_half_written_files_go_after_a_day(home: Home) -> None:
    """What a killed process was writing goes; what may still be written, or only looks like it, stays."""
    home.open()
    month = os.path.join(home.paths.archive, "2020-01")
    os.mkdir(month)
    old = [os.path.join(folder, ".name.0123456789abcdef.tmp") for folder in (month, home.paths.locks, home.paths.home)]
    kept = [os.path.join(month, ".name.fedcba9876543210.tmp"), os.path.join(month, ".mine.tmp")]
    for path in (*old, *kept):
        Path(path).touch()
        age(path, days=2.0)
    age(kept[0], days=0.5)
    assert Retention(home.open()).prune(dry_run=True).deleted == {"half_written": 3}
    assert Retention(home.open()).prune().deleted == {"half_written": 3}
    assert [os.path.exists(path) for path in (*old, *kept)] == [False] * 3 + [True] * 2


def test_a_run_directory_of_any_depth_goes(home: Home) -> None:
    """Directories that are nested deeper than Python follows do not stay."""
    script = "i=0; while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i+1)); done"
    task = done(home, f'cd "$FAIRLEAD_RUN_DIR"; {script}')
    run_dir = rundir.finished_dir(home.paths.conductor, "default", task.id, 1)
    assert os.path.isdir(f"{run_dir}/d/d/d")
    age(run_dir)
    assert Retention(home.open()).prune().deleted["runs"] == 1
    assert not os.path.exists(run_dir)


def test_a_pruning_may_be_done_in_portions(home: Home) -> None:
    """Of each kind so many go at once, and the report says that there is more, until there is none."""
    for _ in range(3):
        done(home, days=0.0)
    retention = Retention(home.open())
    reports: list[Pruned] = []
    while not reports or reports[-1].more:
        reports.append(retention.prune(days=-1.0, most=1))
        assert len(reports) < 9
    assert [report.deleted.get("runs", 0) for report in reports[:3]] == [1, 1, 1]
    assert sum(report.deleted.get("records", 0) for report in reports) == 3
    assert home.tasks() == []
