"""doctor: every finding, on an instance that really has it."""

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.cli.running import Run, quarantined_task

from fairlead.cli import doctoring


def findings(run: Run, code: int = 1) -> dict[str, tuple[str, str]]:
    """What was found: (level, advice) by what it says."""
    return {one["what"]: (one["level"], one["advice"]) for one in run.json("doctor", code=code)}


def one_about(found: dict[str, tuple[str, str]], word: str) -> tuple[str, str, str]:
    """The one finding that speaks of this."""
    [(what, (level, advice))] = [(what, rest) for what, rest in found.items() if word in what]
    return level, what, advice


def test_a_healthy_instance(run: Run) -> None:
    """All is well: exit code 0, and a line for everything that was looked at."""
    run.home.up()
    lines = run.lines("doctor")
    assert all(line.startswith("ok    ") for line in lines)
    assert lines[0] == f"ok    settings: {run.home.paths.config_file}"
    assert lines[2:] == ["ok    the daemon runs", "ok    the watchdog runs", "ok    the store is sound"]


def test_before_the_first_start(run: Run) -> None:
    """No service, no queue: exit code 1 and how to begin."""
    os.unlink(run.home.paths.config_file)
    found = findings(run)
    assert found["settings: defaults"] == ("ok", "")
    assert found["the daemon does not run"] == ("fail", "`fairlead up`")
    assert found["the watchdog does not run"][0] == "fail"
    assert found[f"there is no queue at {run.home.path} yet"] == ("warn", "fairlead up")


def test_one_service_alone(run: Run) -> None:
    """Beside one that runs, `up` would be refused: the other is started by itself."""
    run.home.start("watchdog")
    assert findings(run)["the daemon does not run"] == ("fail", "`fairlead daemon --detach`")


def test_before_there_is_a_home(run: Run) -> None:
    """A directory that is still to be made is no trouble."""
    shutil.rmtree(run.home.path)
    assert one_about(findings(run), "disk")[0] == "ok"
    run.home.path.mkdir()


def test_every_mistake_in_the_settings_is_a_finding(run: Run) -> None:
    """Each is named with its file and line."""
    Path(run.home.paths.config_file).write_text("slots:\n  maxx: 1\nfoo: 1\n", encoding="utf-8")
    found = findings(run)
    assert one_about(found, "slots.maxx")[0] == "fail"
    assert one_about(found, "foo")[2] == "`fairlead config check` looks again"


def test_an_agent_that_is_not_installed(run: Run) -> None:
    """The default agent and those of projects are looked for; nobody needs all that are built in."""
    agents = {"mine": {"command": ["no-such-program"]}, "theirs": {"command": ["neither-this"]}}
    projects = {"website": {"path": "/tmp", "agent": "theirs"}, "other": {"path": "/tmp"}}  # noqa: S108 - only a path
    run.home.configure(agents=agents, default_agent="mine", projects=projects)
    found = findings(run)
    assert one_about(found, "agent mine needs no-such-program")[0] == "fail"
    assert one_about(found, "agent theirs needs neither-this")[2] == "install it"
    assert not [what for what in found if "codex" in what]


def test_an_agent_whose_program_is_a_placeholder_is_not_looked_for(run: Run) -> None:
    """What the task decides cannot be looked for."""
    run.home.configure(agents={"mine": {"command": ["{task_file}"]}}, default_agent="mine")
    assert not [what for what in findings(run) if what.startswith("agent")]


@pytest.mark.parametrize(("room", "level"), [(1 << 60, "fail"), (0, "ok")])
def test_room_on_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch, room: int, level: str) -> None:
    """Little room is worth a word, hardly any an alarm."""
    monkeypatch.setattr(doctoring, "ROOM", room)
    assert one_about(findings(run), "GiB free")[0] == level


def test_little_room_on_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than wanted, but more than a tenth of it, is a warning."""
    monkeypatch.setattr(doctoring, "ROOM", shutil.disk_usage(run.home.path).free * 5)
    level, _, advice = one_about(findings(run), "GiB free")
    assert (level, advice) == ("warn", "make room; `fairlead prune` may help")


def test_a_remote_file_system(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locks do not hold, no instance can live."""
    kind = doctoring._file_system(str(run.home.path))
    assert kind
    monkeypatch.setattr(doctoring, "REMOTE", frozenset({kind}))
    level, what, advice = one_about(findings(run), f"is on {kind}")
    assert (level, what, advice) == ("fail", f"{run.home.path} is on {kind}", "put the instance on a local disk")


def test_refused_files(run: Run) -> None:
    """Somebody should read why, and mend them."""
    run.home.drop("bad.json", prioritty="high")
    run.home.drop("worse.json", agent="nobody")
    run.home.play(lambda: len(run.home.rejected()) == 2, run.home.dispatcher(), None)
    level, what, advice = one_about(findings(run), "refused file")
    assert (level, what) == ("warn", "2 refused files")
    assert advice == f"read {run.home.paths.rejected}/bad.json.error, mend the file, move it back"


def test_files_that_nobody_takes_in(run: Run) -> None:
    """Dropped files wait while no daemon runs; unfinished ones are not counted."""
    run.home.drop("task.json")
    Path(run.home.paths.spool, "half.json.tmp").touch()
    run.home.open()
    Path(run.home.paths.intake, "20260101-000000000-0000000000@x.yaml").touch()
    level, what, advice = one_about(findings(run), "spool")
    assert (level, what, advice) == ("warn", "2 files in the spool, and nobody takes them in", "`fairlead up`")


def test_a_store_that_is_gone(run: Run) -> None:
    """Tasks without a store need a rebuild."""
    run.home.submit()
    run.home.clear()
    os.unlink(run.home.paths.store)
    level, what, advice = one_about(findings(run), "is missing")
    assert what.startswith(f"{run.home.paths.store} is missing, but there are 1 accepted tasks and 0 runs")
    assert (level, advice) == ("fail", "fairlead rebuild")


def test_a_store_that_is_no_database(run: Run) -> None:
    """It cannot even be opened."""
    Path(run.home.paths.store).write_text("no database" * 1000, encoding="utf-8")
    level, _, advice = one_about(findings(run), "cannot be trusted")
    assert (level, advice) == ("fail", "stop both services, then `fairlead rebuild --replace`")


def test_a_store_with_a_damaged_page(run: Run) -> None:
    """It can be opened, but one of its pages is nonsense."""
    run.home.submit_all([run.home.document(title="x" * 150) for _ in range(200)])
    run.home.clear()
    size = os.path.getsize(run.home.paths.store)
    with open(run.home.paths.store, "r+b") as file:
        file.seek(size - size // 3)
        file.write(os.urandom(size // 3))
    level, _, advice = one_about(findings(run), "the store is damaged")
    assert (level, advice) == ("fail", "stop both services, then `fairlead rebuild --replace`")


def test_a_store_that_others_can_read(run: Run) -> None:
    """Rights that somebody has widened are told, with how to take them back."""
    run.home.open()
    assert not [what for what in findings(run) if "has mode" in what]
    os.chmod(run.home.paths.store, 0o644)
    level, what, advice = one_about(findings(run), "has mode")
    assert (level, what) == ("warn", f"{run.home.paths.store} has mode 0644: others may get at it")
    assert advice == f"chmod 600 {run.home.paths.store}"


def test_a_quarantined_lock(run: Run) -> None:
    """A person has to look."""
    instance = run.home.open()
    lock = instance.locks.acquire("ann", "some-task", 0.0)
    assert lock
    run.home.quarantine(lock, {"left": [[7, 9]]})
    level, what, advice = one_about(findings(run), "is quarantined")
    assert (level, what) == ("fail", "user:ann is quarantined since task some-task")
    assert advice == "look whether [[7, 9]] are alive, then `fairlead lock release ann --force`"


def test_a_quarantined_lock_of_a_task(run: Run) -> None:
    """It has no user: the advice names it in full, as `lock release` takes it."""
    task_id = quarantined_task(run.home)
    _, what, advice = one_about(findings(run), "is quarantined")
    assert what == f"task:{task_id} is quarantined since task {task_id}"
    assert advice.endswith(f"then `fairlead lock release task:{task_id} --force`")


def test_a_lease_that_is_over(run: Run) -> None:
    """A run that nobody has seen alive for its whole lease is the watchdog's business."""
    run.home.configure(
        per_user_serialization={"lock_timeout_seconds": 0.02}, intervals={"heartbeat": 0.005, "watch": 3600.0}
    )
    run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    found: dict[str, tuple[str, str]] = {}
    while "the lease of user:ann is over" not in found:
        found = findings(run)
    assert found["the lease of user:ann is over"][0] == "warn"


def test_a_foreign_lock_file(run: Run) -> None:
    """Its user is not dispatched."""
    run.home.open()
    path = Path(run.home.paths.locks, "user_ann.lock")
    path.touch()
    two_days_ago = time.time() - 2 * 86400 - 60
    os.utime(path, (two_days_ago, two_days_ago))
    level, what, advice = one_about(findings(run), "not Fairlead's")
    assert level == "warn"
    assert what == f"{path} is not Fairlead's (made by hand, 2d1m old): ann is not dispatched"
    assert advice == "its maker removes it, or `fairlead lock release ann --force`"


def test_a_run_of_no_task(run: Run) -> None:
    """Directories that belong to nobody are shown; those of known tasks are not."""
    run.home.submit("sleep 60")
    run.home.dispatcher().run_once()
    stray = Path(run.home.paths.conductor, "default", "active", "20260101-000000000-0000000000.1")
    stray.mkdir()
    level, what, _ = one_about(findings(run), "no known task")
    assert (level, what) == ("warn", f"1 run of no known task, like {stray}")


def test_pauses(run: Run) -> None:
    """Whatever is paused is told with who did it, and why."""
    run.home.open()
    run("pause", "--reason", "\x1b[2J")
    run("pause", "user:ann")
    found = findings(run)
    assert one_about(found, "all is paused by ")[2] == "`fairlead resume all` goes on"
    assert one_about(found, "user:ann is paused by ")[0] == "warn"
    assert "\x1b" not in run("doctor", code=1).out
