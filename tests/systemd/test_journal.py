"""The journal of a real host tells a task's story, whatever a task is called."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.booted.host import FAIRLEAD, PYTHON, Host, boot
from tests.support.patience import eventually

USER = "alice"
SPOOL = f"/home/{USER}/.local/state/fairlead/spool"


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """A host on which a user has a queue of his own."""
    with closing(boot()) as host:
        host.useradd(USER)
        host.linger(USER)
        host.fairlead("install", "--enable", user=USER)
        eventually(lambda: host.is_active("fairlead-daemon.service", user=USER), "it does not come up")
        yield host


def drop(host: Host, name: str, **task: object) -> str:
    """Lay a file into the spool, and return the id of its task."""
    move = 'cat >"$1/.$2" && mv "$1/.$2" "$1/$2"'
    host.run("sh", "-c", move, "sh", SPOOL, name, user=USER, stdin=json.dumps(task))
    [entry] = eventually(
        lambda: [one for one in host.journal("FAIRLEAD_EVENT=queued") if f"source={name}" in one["MESSAGE"]],
        "it is not taken in",
    )
    return str(entry["FAIRLEAD_TASK"])


def story(host: Host, task_id: str) -> list[str]:
    return [entry["FAIRLEAD_EVENT"] for entry in host.journal(f"FAIRLEAD_TASK={task_id}")]


def test_a_tasks_story_is_told_in_order(host: Host) -> None:
    """From the spool to its end, each with who, which and where."""
    task_id = drop(host, "long.json", prompt="sleep 0.3", user="bob")
    eventually(lambda: "completed" in story(host, task_id), "it does not end")
    assert story(host, task_id) == ["queued", "claimed", "started", "completed"]
    entries = host.journal(f"FAIRLEAD_TASK={task_id}")
    assert {entry["FAIRLEAD_USER"] for entry in entries} == {"bob"}
    assert {entry["FAIRLEAD_PROJECT"] for entry in entries} == {"default"}
    assert [entry.get("FAIRLEAD_ATTEMPT") for entry in entries] == [None, "1", "1", "1"]
    assert {entry["SYSLOG_IDENTIFIER"] for entry in entries} == {"fairlead"}
    assert {entry["PRIORITY"] for entry in entries} == {"6"}


def test_a_failure_is_a_warning(host: Host) -> None:
    """`journalctl -p warning` shows what needs a look."""
    task_id = drop(host, "bad.json", prompt="exit 3", user="carl")
    eventually(lambda: "failed" in story(host, task_id), "it does not end")
    [entry] = host.journal("-p", "warning", f"FAIRLEAD_TASK={task_id}")
    assert "exit" in entry["MESSAGE"]


def test_the_file_is_not_written_beside_the_journal(host: Host) -> None:
    """The journal keeps the lines, and turns them over."""
    drop(host, "quick.json", prompt="true", user="dora")
    log = host.path(f"/home/{USER}/.local/state/fairlead/logs/fairlead.log")
    assert not log.exists() or "daemon" not in log.read_text()


def test_poison_stays_in_its_field(host: Host) -> None:
    """The real journal is told a megabyte of forged fields, and finds one entry with one task."""
    program = (
        "import sys; from fairlead.base.journal import Journal; from fairlead.base.logs import entry;"
        "poison = 'x\\nFAIRLEAD_TASK=forged\\n\\x1b[2J\\udce9' * 40_000;"
        "send = Journal().send;"
        "send({'MESSAGE': poison, 'FAIRLEAD_TASK': 'poisoned', 'FAIRLEAD_USER': poison});"
        "send(entry({'level': 'error', 'event': poison, 'task': 'spelled', 'user': poison, 'error': poison}))"
    )
    host.run(PYTHON, "-c", program)
    assert host.journal("FAIRLEAD_TASK=forged") == []
    for name in ("poisoned", "spelled"):
        [entry] = eventually(lambda name=name: host.journal(f"FAIRLEAD_TASK={name}"), "it is not there")  # type: ignore[misc]
        assert entry["FAIRLEAD_TASK"] == name
    assert isinstance(host.journal("FAIRLEAD_TASK=spelled")[0]["MESSAGE"], str)


def test_a_command_in_a_unit_speaks_to_the_journal_too(host: Host) -> None:
    """What a timer changes is part of the story."""
    done = host.run(FAIRLEAD, "submit", "--json", "--prompt", "true", "--run-at", "+1h", user=USER)
    task_id = json.loads(done.stdout)[0]["id"]
    host.run("systemd-run", "--user", "--wait", "--quiet", FAIRLEAD, "cancel", task_id, user=USER)
    eventually(lambda: story(host, task_id) == ["cancelled"], "it is not told")
