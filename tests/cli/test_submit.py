"""submit: files, options and standard input become tasks, all of them or none."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import Run, process, wait_waiting
from tests.support.instance import ROOT, Home

from fairlead.base.errors import RefusedError
from fairlead.cli.access import reading
from fairlead.cli.commands.wait import _end
from fairlead.queue.states import Status


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def tasks(home: Home) -> list[str]:
    """The ids of all tasks, oldest first."""
    return [task.id for task in home.tasks()]


def test_files_of_every_format_are_taken_in(run: Run, tmp_path: Path) -> None:
    """The ids are printed in the order of the files, and the tasks are there."""
    files = [
        write(tmp_path, "a.yaml", "prompt: echo a\n"),
        write(tmp_path, "b.json", '{"prompt": "echo b"}'),
        write(tmp_path, "c.md", "---\ntitle: third\nagent: shell\n---\necho c\n"),
    ]
    ids = run.lines("submit", *files)
    assert tasks(run.home) == ids
    assert [run.home.task(one).spec.title for one in ids] == ["echo a", "echo b", "third"]


def test_an_answer_for_programs_is_a_list(run: Run, tmp_path: Path) -> None:
    """One file or several: id, file as it was given, and what there is to know."""
    one = write(tmp_path, "a.yaml", "prompt: 'true'\n")
    [answer] = run.json("submit", one)
    assert answer == {"id": tasks(run.home)[0], "file": one, "spooled": False, "notes": []}
    assert len(run.json("submit", one, one)) == 2


def test_one_wrong_file_stops_all_and_every_wrong_one_is_named(run: Run, tmp_path: Path) -> None:
    """Nothing is submitted, and nothing has to be tried twice to see all mistakes."""
    good = write(tmp_path, "good.yaml", "prompt: 'true'\n")
    typo = write(tmp_path, "typo.yaml", "prompt: 'true'\nprioritty: high\n")
    text = write(tmp_path, "notes.txt", "hello")
    wrong = run.refusal("submit", good, typo, text, code=2)
    assert wrong.splitlines() == [
        f"{typo}: 1 problem",
        "  line 2: prioritty: there is no such key (did you mean 'priority'?)",
        f"{text}: 1 problem",
        "  the name must end in .yaml, .yml, .json, .md, .markdown; rename the file",
        "nothing was submitted.",
    ]
    assert tasks(run.home) == []
    assert os.listdir(run.home.paths.intake) == []


def test_a_file_that_cannot_be_read_stops_all(run: Run, tmp_path: Path) -> None:
    """The file is named with what the system says of it."""
    good = write(tmp_path, "good.yaml", "prompt: 'true'\n")
    wrong = run.refusal("submit", good, str(tmp_path / "none.yaml"), code=2)
    assert wrong == f"{tmp_path}/none.yaml cannot be read: No such file or directory; nothing was submitted."
    assert "cannot be read: Is a directory" in run.refusal("submit", str(tmp_path), code=2)


def test_a_command_without_its_dashes_is_recognised(run: Run, tmp_path: Path) -> None:
    """Words that are no files are taken for a command, and the way to run one is shown."""
    wrong = run.refusal("submit", "echo", "hello you", code=2)
    assert wrong.endswith("; to run a command: `fairlead submit -- echo 'hello you'`.")
    assert "to run a command" not in run.refusal("submit", str(tmp_path / "none.yaml"), "x", code=2)


def test_an_unknown_project_is_told_with_the_file_that_it_belongs_into(run: Run) -> None:
    """The place of the settings is named, since there may be none yet."""
    wrong = run.refusal("submit", "--project", "website", "--", "true", code=2)
    assert wrong.endswith(f"; add it under `projects` in {run.home.paths.config_file}")


def test_a_file_that_is_too_big_is_refused(run: Run, tmp_path: Path) -> None:
    """The setting's limit holds here as it does in the spool."""
    run.home.configure(limits={"task_file_bytes": 1000})
    big = write(tmp_path, "big.yaml", f"prompt: {'x' * 1000}\n")
    assert "at most 1000 are allowed" in run.refusal("submit", big, code=2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "prompt: echo s\n"),
        (("--format", "yaml"), "prompt: echo s\n"),
        (("--format", "json"), '{"prompt": "echo s"}'),
        (("--format", "md"), "---\nagent: shell\n---\necho s\n"),
    ],
    ids=str,
)
def test_standard_input_is_a_file(run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], text: str) -> None:
    """- reads a task in the format that is named."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    [task_id] = run.lines("submit", "-", *words)
    assert run.home.task(task_id).spec.prompt.strip() == "echo s"


def test_options_make_a_task(run: Run) -> None:
    """Everything that a person would write into a file can be said on the command line."""
    run.home.configure(projects={"website": {"path": str(run.home.work)}})
    options = {"title": "A title", "agent": "claude", "project": "website", "user": "bob", "action": "mend"}
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    [task_id] = run.lines(
        "submit", "--prompt", "do it", *words, "--timeout", "45m", "--idempotent", "--priority", "high"
    )
    spec = run.home.task(task_id).spec
    assert {key: getattr(spec, key) for key in options} == options
    assert (spec.prompt, spec.timeout, spec.idempotent, spec.priority, spec.source) == (
        "do it",
        2700.0,
        True,
        1,
        "submit",
    )


@pytest.mark.parametrize(("word", "rank"), [("critical", 0), ("low", 3), ("normal", 2), ("0", 0), ("3", 1), ("10", 3)])
def test_priorities_are_words_or_numbers(run: Run, word: str, rank: int) -> None:
    """What a task file may say, the option may say."""
    [task_id] = run.lines("submit", "--prompt", "true", "--priority", word)
    assert run.home.task(task_id).spec.priority == rank


def test_a_command_can_be_submitted(run: Run) -> None:
    """What stands behind -- is run as it is, options and all."""
    [task_id] = run.lines("submit", "--title", "t", "--", "make", "--json", "--", "x y")
    assert run.home.task(task_id).spec.command == ("make", "--json", "--", "x y")


def test_a_time_without_a_zone_is_noted(run: Run) -> None:
    """The note says how it was read; the answer stays clean."""
    said = run("submit", "--prompt", "true", "--run-at", "2030-01-01 10:00")
    assert said.err.startswith(
        "fairlead: note: run_at: '2030-01-01 10:00' names no time zone; this host's is meant: 2030"
    )
    assert said.out.strip() == tasks(run.home)[0]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ((), "say what to submit: task files, --prompt TEXT, or -- COMMAND."),
        (("--wait",), "say what to submit: task files, --prompt TEXT, or -- COMMAND."),
        (("--",), "say what to submit: task files, --prompt TEXT, or -- COMMAND."),
        (("a.yaml", "--prompt", "x"), "give task files or options that make one task, not both"),
        (("a.yaml", "--", "ls"), "give task files or options that make one task, not both"),
        (("--idempotent",), "prompt: give a prompt or a command"),
        (("--prompt", ""), "prompt: give a prompt or a command"),
        (("--prompt", "x", "--priority", "hgih"), "priority: 'hgih' is not a priority (did you mean 'high'?)"),
        (("--prompt", "x", "--timeout", "5x"), "timeout: '5x' is not a duration"),
        (("--prompt", "x", "--run-at", "noon"), "run_at: 'noon' is not a time"),
        (("--prompt", "x", "--agent", "clade"), "agent: there is no agent 'clade'"),
        (("--prompt", "x", "--user", "../x"), "user: '../x' cannot be a user"),
    ],
    ids=str,
)
def test_wrong_options_are_told_as_options(run: Run, words: tuple[str, ...], wrong: str) -> None:
    """No file and no line is named, since nobody wrote one; nothing is submitted."""
    refusal = run.refusal("submit", *words, code=2)
    assert refusal.startswith(wrong)
    assert "\n" not in refusal
    assert not os.path.exists(run.home.paths.store) or tasks(run.home) == []


def test_a_full_queue_refuses(run: Run) -> None:
    """Above the configured number of waiting tasks a submission is refused with exit code 5."""
    run.home.configure(limits={"pending_warn": 1, "pending_max": 2})
    run("submit", "--prompt", "true")
    assert "fairlead: note: " in run("submit", "--prompt", "true").err
    assert "pending" in run.refusal("submit", "--prompt", "true", code=5)


def test_without_room_for_all_none_is_taken_in(run: Run, tmp_path: Path) -> None:
    """Three files where two would fit: nothing is queued, nothing waits for later, and no id is printed."""
    run.home.configure(limits={"pending_max": 2})
    files = [write(tmp_path, f"{number}.yaml", "prompt: 'true'\n") for number in range(3)]
    wrong = run.refusal("submit", *files, code=5)
    assert wrong.splitlines()[1:] == ["nothing was submitted."]
    assert tasks(run.home) == []
    assert (os.listdir(run.home.paths.intake), os.listdir(run.home.paths.rejected)) == ([], [])
    assert len(run.lines("submit", *files[:2])) == 2


def test_while_the_store_is_away_the_file_waits_in_the_spool(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id is given all the same, with a note, and the task is there when the store is back."""
    instance = run.home.open()
    monkeypatch.setattr("fairlead.queue.sqlite.connection.BUSY_MS", 1)
    with instance.store.db.transaction():
        said = run("submit", "--prompt", "true")
    assert "the store is away: the file waits in the spool" in said.err
    run.home.dispatcher().run_once()
    assert tasks(run.home) == [said.out.strip()]


@pytest.mark.parametrize("trouble", ["gone", "damaged", "unreachable"])
def test_while_there_is_no_store_the_file_waits_in_the_spool(run: Run, trouble: str) -> None:
    """It is checked and laid down durably, and who submits is told; a rebuilt store finds it."""
    run.home.submit()
    run.home.clear_opened()
    store = Path(run.home.paths.store)
    for ending in ("", "-wal", "-shm"):
        Path(f"{store}{ending}").unlink(missing_ok=True)
    if trouble == "damaged":
        store.write_bytes(b"this is no database at all " * 300)
    if trouble == "unreachable":
        store.mkdir()
    assert "agent: there is no agent 'clade'" in run("submit", "--prompt", "x", "--agent", "clade", code=2).err
    said = run("submit", "--prompt", "true")
    assert "the store is away: the file waits in the spool" in said.err
    assert str(store) in said.err
    run("submit", "--dry-run", "--prompt", "true", code={"gone": 5, "damaged": 1, "unreachable": 6}[trouble])
    if trouble == "unreachable":
        store.rmdir()
    run("rebuild", "--replace")
    run.home.dispatcher().run_once()
    assert said.out.strip() in tasks(run.home)


def test_who_submits_to_a_stopped_daemon_is_told(run: Run) -> None:
    """The task is there, and so is a word on what it waits for; with the daemon running there is none."""
    note = f"fairlead: note: no daemon runs for {run.home.path}; "
    assert run("submit", "--prompt", "true").err == f"{note}`fairlead up` starts both services\n"
    run.home.start("watchdog")
    assert run("submit", "--prompt", "true").err == f"{note}`fairlead daemon --detach` starts it\n"
    run.home.start("daemon")
    assert run("submit", "--prompt", "true").err == ""


# ---------------------------------------------------------------------- --dry-run


def test_a_dry_run_says_what_would_happen(run: Run, tmp_path: Path) -> None:
    """How the file is read, and what would keep it waiting; nothing is submitted."""
    run.home.up()
    one = write(tmp_path, "a.yaml", "prompt: echo a\nuser: bob\n")
    assert run.lines("submit", "--dry-run", one) == [
        f"{one}: 'echo a' for bob in project default, agent shell, medium priority",
        f"  in {run.home.path}",
        "  would start at once",
    ]
    later = run.lines("submit", "--dry-run", "--prompt", "true", "--run-at", "2030-01-01T00:00")
    assert later[0].startswith("'true' for ")
    assert later[0].endswith("Z")
    assert later[2].startswith("  would wait: it is due in ")
    assert later[3].startswith("  note: run_at: ")
    run("pause", "user:bob", "--reason", "lunch")
    assert "  would wait: bob is paused by " in run("submit", "--dry-run", one).out
    assert tasks(run.home) == []


def test_a_dry_run_makes_no_instance(run: Run) -> None:
    """It says that nobody would take the task up, and leaves no directory behind."""
    before = os.listdir(run.home.path)
    lines = run.lines("submit", "--dry-run", "--", "true")
    assert lines[-1] == "  would wait: the daemon does not run; `fairlead up` starts both services"
    assert os.listdir(run.home.path) == before


def test_a_dry_run_finds_what_is_wrong(run: Run) -> None:
    """Mistakes are told as they would be without it."""
    assert run.refusal("submit", "--dry-run", "--prompt", "x", "--agent", "clade", code=2).startswith("agent: ")


def test_a_dry_run_for_programs(run: Run) -> None:
    """The whole reading of each file, with its prospect."""
    [answer] = run.json("submit", "--dry-run", "--prompt", "true", "--priority", "1")
    assert (answer["file"], answer["prompt"], answer["priority"]) == ("submit.json", "true", "critical")
    assert answer["prospect"].startswith("would wait: the daemon does not run")
    assert answer["notes"] == []


def test_a_dry_run_cannot_be_used_to_command_a_terminal(run: Run) -> None:
    """Titles are spelled out."""
    assert "\x1b" not in run("submit", "--dry-run", "--prompt", "true", "--title", "\x1b[2J").out


# ---------------------------------------------------------------------- --wait


def test_waiting_tells_how_it_ended(run: Run) -> None:
    """The id first, then the end; 0 only if it completed."""
    run.home.up()
    first, second = run.lines("submit", "--wait", "--prompt", "true")
    assert second == f"{first} completed"
    failed = run.lines("submit", "--wait", "--prompt", "exit 3", code=1)
    assert failed[1] == f"{failed[0]} failed: the agent ended with exit code 3"
    said = run("submit", "--wait", "--prompt", "exit 3", code=1)
    assert said.err == f"fairlead: note: `fairlead logs {said.out.split()[0]}` shows its output\n"


def test_waiting_for_programs_is_one_document(run: Run) -> None:
    """With --json the answer is that of `wait`, and nothing before it."""
    run.home.up()
    [answer] = run.json("submit", "--wait", "--prompt", "exit 3", code=1)
    assert (answer["status"], answer["exit_code"], answer["reason"]) == ("failed", 3, "exit")


def test_who_waits_for_stopped_services_is_told(run: Run) -> None:
    """A person who waits in vain learns why, at once."""
    run.home.open()
    with process(run.home, "submit", "--wait", "--prompt", "true") as one:
        assert one.stderr
        assert "no daemon runs for" in one.stderr.readline()
        assert "no watchdog runs for" in one.stderr.readline()
        wait_waiting(run.home, "wait", one)
        run.home.up()
        out, _ = one.communicate(timeout=60)
    assert one.returncode == 0
    assert out.splitlines()[1].endswith(" completed")


@contextmanager
def waiting_for_a_spooled_file(run: Run, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """`submit --wait` whose file was laid into the spool, since somebody had the store for himself for long."""
    store = run.home.open().store
    impatient = "import fairlead.queue.sqlite.connection as c; c.BUSY_MS = 1"
    code = f"{impatient}; import sys; from fairlead.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", code, "submit", "--wait", *words]
    with subprocess.Popen(
        arguments, cwd=ROOT, env=run.home.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as one:
        try:
            with store.db.transaction():
                wait_waiting(run.home, "wait", one)
            yield one
        finally:
            one.kill()


def test_a_file_in_the_spool_is_waited_for(run: Run) -> None:
    """It has not ended: it is taken in when the store is back, and its end is told as any other."""
    with waiting_for_a_spooled_file(run, "--prompt", "true") as one:
        run.home.up()
        out, err = one.communicate(timeout=60)
    assert one.returncode == 0, err
    assert "the file waits in the spool" in err
    assert out.splitlines()[1] == f"{out.splitlines()[0]} completed"


def test_a_file_in_the_spool_that_is_refused_is_told(run: Run) -> None:
    """Who waits for it gets the refusal's text, and exit code 5."""
    with waiting_for_a_spooled_file(run, "--prompt", "true", "--user", "ann") as one:
        run.home.configure(limits={"pending_warn": 1, "pending_max": 1})
        run.home.submit(user="ann")
        run.home.dispatcher()  # it begins with the files that were left
        out, err = one.communicate(timeout=60)
    assert one.returncode == 5
    assert f"fairlead: {out.strip()} was refused: " in err
    assert "pending" in err


def test_waiting_for_an_id_that_lies_in_the_spool(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait` knows it as well; its refusal, if nobody noted it, is to be read beside the file."""
    instance = run.home.open()
    monkeypatch.setattr("fairlead.queue.sqlite.connection.BUSY_MS", 1)
    with instance.store.db.transaction():
        task_id = run("submit", "--prompt", "true").out.strip()
    assert task_id in run.refusal("wait", task_id, "--timeout", "0.01s", code=6).splitlines()[-1]
    os.unlink(Path(run.home.paths.intake, *os.listdir(run.home.paths.intake)))
    with pytest.raises(RefusedError, match=f"{task_id} was refused: .*rejected says why"):
        _end(reading(), task_id, {task_id})


def test_many_submitters_at_once_never_collide(run: Run) -> None:
    """Processes that submit at the same moment all get their own tasks."""
    run.home.open()
    several = [process(run.home, "submit", "--json", "--prompt", "true") for _ in range(8)]
    running = [one.__enter__() for one in several]
    ids = {json.loads(one.communicate(timeout=60)[0])[0]["id"] for one in running}
    for one in several:
        one.__exit__(None, None, None)
    assert len(ids) == 8
    assert {task.id: task.status for task in run.home.tasks()} == dict.fromkeys(ids, Status.QUEUED)
