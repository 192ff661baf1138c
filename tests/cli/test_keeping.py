"""prune, rebuild, config, simulate: the instance itself."""

import os
from pathlib import Path

import pytest
from tests.cli.running import Run

from fairlead.cli.commands import simulate

# ---------------------------------------------------------------------- prune


def test_pruning_tells_before_it_deletes(run: Run) -> None:
    """--dry-run says what would go, --older-than how old it must be; without anything old nothing goes."""
    task_id = run.played()
    assert run.lines("prune") == ["deleted nothing"]
    assert run.lines("prune", "--dry-run") == ["would delete nothing"]
    would = run.lines("prune", "--dry-run", "--older-than", "0")
    assert "would delete runs: 1" in would
    assert run.json("show", task_id)["status"] == "completed"
    assert "deleted records: 1" in run.lines("prune", "--older-than", "0s")
    run.refusal("show", task_id, code=4)


def test_pruning_makes_no_instance(run: Run) -> None:
    """Where there is no queue there is nothing to prune."""
    before = os.listdir(run.home.path)
    assert run.refusal("prune", "--dry-run", code=6).startswith("there is no queue at ")
    assert os.listdir(run.home.path) == before


def test_pruning_for_programs(run: Run) -> None:
    """Counts by kind, and what was kept although it is old."""
    run.played()
    answer = run.json("prune", "--dry-run", "--older-than", "0")
    assert (answer["dry_run"], answer["deleted"]["runs"], answer["kept"]) == (True, 1, [])


def test_what_is_kept_is_told(run: Run) -> None:
    """A path that cannot be deleted safely is named with why, spelled out."""
    run.home.open()
    Path(run.home.paths.rejected, "\x1b[2J").mkdir()
    assert run.lines("prune", "--older-than", "0")[-1] == f"kept {run.home.paths.rejected}/\\x1b[2J: it is a directory"


def test_an_age_is_a_duration(run: Run) -> None:
    """The option is named."""
    assert "argument --older-than: 'x' is not a duration" in run.refusal("prune", "--older-than", "x", code=2)


# ---------------------------------------------------------------------- rebuild


def test_rebuilding_a_store_that_is_gone(run: Run) -> None:
    """Tasks come back from their files."""
    waits, done = run.home.submit(run_at="+1h"), run.played()
    run.home.clear()
    for name in os.listdir(run.home.path):
        if name.startswith("queue.db"):
            os.unlink(run.home.path / name)
    assert run.json("rebuild")["restored"] == {"queued": 1, "completed": 1}
    assert {task["id"] for task in run.json("list", "--all")} == {waits, done}


def test_a_store_that_is_there_is_not_replaced_unasked(run: Run) -> None:
    """--replace puts it aside, and says where."""
    run.home.submit()
    run.home.clear()
    assert "say --replace to put it aside and rebuild" in run.refusal("rebuild", code=5)
    restored, aside = run.lines("rebuild", "--replace")
    assert restored == "restored: 1 queued"
    assert Path(aside.removeprefix("the old store is at ")).is_file()
    answer = run.json("rebuild", "--replace")
    assert (answer["restored"], answer["unreadable"]) == ({"queued": 1}, [])
    assert Path(answer["aside"]).is_file()


def test_rebuilding_nothing(run: Run) -> None:
    """A new instance has nothing to restore."""
    assert run.lines("rebuild") == ["restored: nothing"]


def test_files_that_cannot_be_read_are_named(run: Run) -> None:
    """Exit code 1; the file stays where it is."""
    run.home.submit()
    run.home.clear()
    [path] = Path(run.home.paths.accepted).rglob("*.json")
    path.write_text("{", encoding="utf-8")
    lines = run.lines("rebuild", "--replace", code=1)
    assert lines[-1].startswith(f"could not be read and was left where it is: {path}: ")
    assert path.exists()


@pytest.mark.usefixtures("impatient")
def test_running_services_must_be_stopped_first(run: Run) -> None:
    """The error says which one runs, and what to do."""
    daemon = run.home.start("daemon")
    wrong = run.refusal("rebuild", code=5)
    assert wrong.endswith(f"with pid {daemon.pid}. Stop both services, then rebuild.")


# ---------------------------------------------------------------------- config


def test_good_settings(run: Run) -> None:
    """The files that were read are named."""
    assert run.lines("config", "check") == [f"the settings are good; read: {run.home.paths.config_file}"]
    assert run.json("config", "check") == {"ok": True, "files": [run.home.paths.config_file]}
    os.unlink(run.home.paths.config_file)
    assert run.lines("config", "check") == ["the settings are good; read: no file, all defaults"]


def test_wrong_settings(run: Run) -> None:
    """All problems at once, with exit code 2; programs get them as a list."""
    Path(run.home.paths.config_file).write_text("slots:\n  maxx: 1\nfoo: 1\n", encoding="utf-8")
    wrong = run.refusal("config", "check", code=2)
    assert "slots.maxx: unknown key; did you mean 'max'?" in wrong
    assert "foo: unknown key" in wrong
    answer = run.json("config", "check", code=2)
    assert (answer["ok"], len(answer["problems"])) == (False, 2)
    assert run.refusal("config", "show", code=2) == wrong


def test_showing_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value as one would write it, and who set it; --set leaves the defaults out."""
    monkeypatch.setenv("FAIRLEAD__SLOTS__MAX", "7")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in run.lines("config", "show")}
    assert rows["slots.max"] == ["FAIRLEAD__SLOTS__MAX", "7"]
    assert rows["per_user_serialization.enabled"] == ["default", "true"]
    assert rows["default_user"] == ["default", "null"]
    assert rows["default_agent"] == ["default", "shell"]
    assert rows["agents.shell.command"] == ["default", '["/bin/sh", "{prompt_file}"]']
    only = run.json("config", "show", "--set")
    assert {"key": "slots.max", "value": 7, "origin": "FAIRLEAD__SLOTS__MAX"} in only
    assert all(row["origin"] != "default" for row in only)


def test_no_settings_to_show(run: Run) -> None:
    """Where nothing is set, a sentence says so."""
    os.unlink(run.home.paths.config_file)
    assert run.lines("config", "show", "--set") == ["nothing is set; all values are defaults"]
    assert run.json("config", "show", "--set") == []


def test_config_needs_to_know_what(run: Run) -> None:
    """The ways are named."""
    assert "required: check|show" in run.refusal("config", code=2)
    assert "invalid choice: 'edit'" in run.refusal("config", "edit", code=2)


# ---------------------------------------------------------------------- simulate


def test_simulating(run: Run) -> None:
    """The same seed gives the same story, with a row per user and a summary."""
    words = ("simulate", "ann:50:10m", "bob:5:10m:1h", "--slots", "1")
    lines = run.lines(*words)
    assert [line.split()[0] for line in lines[:3]] == ["USER", "ann", "bob"]
    assert lines[3].startswith("all of it takes ")
    assert lines == run.lines(*words)
    assert lines != run.lines(*words, "--seed", "2")


def test_simulating_for_programs(run: Run) -> None:
    """Every start, every user, and how far anybody fell behind; slots.max is the default."""
    report = run.json("simulate", "ann:3:10m", "bob:2:5m")
    assert len(report["starts"]) == 5
    assert [user["user"] for user in report["users"]] == ["ann", "bob"]
    assert set(report) == {"seconds", "starts", "users", "drift"}


@pytest.mark.parametrize(
    ("load", "wrong"),
    [
        ("ann", "'ann' is not a load: write USER:TASKS:LENGTH"),
        ("ann:x:10m", "'ann:x:10m' is not a load: write USER:TASKS:LENGTH"),
        ("ann:²:10m", "'ann:²:10m' is not a load: write USER:TASKS:LENGTH"),
        ("ann:1:1m:1m:1m", "'ann:1:1m:1m:1m' is not a load"),
        ("ann:1:long", "'long' is not a duration"),
        ("ann:1:1m:", "'' is not a duration"),
        ("ann:0:1m", "'ann:0:1m' is not a load: there must be at least one task"),
        ("ann:1:0", "'ann:1:0' is not a load: there must be at least one task"),
        ("../x:1:1m", "'../x' cannot be a user"),
        (f"ann:{simulate.MOST_TASKS + 1}:1m", "that is too much to imagine"),
    ],
)
def test_a_load_that_is_none_is_refused(run: Run, load: str, wrong: str) -> None:
    """What is wrong with it is told, with an example."""
    assert run.refusal("simulate", load, code=2).startswith(wrong)


def test_slots_are_at_least_one(run: Run) -> None:
    """Without a slot nothing would ever start."""
    assert "argument --slots: 0 is not enough" in run.refusal("simulate", "ann:1:1m", "--slots", "0", code=2)
