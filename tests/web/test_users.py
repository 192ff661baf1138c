"""The system's instance over its socket, for real and distinct users."""

import os
import subprocess
from pathlib import Path

from tests.support.patience import PATIENCE, eventually
from tests.support.programs import ROOT
from tests.support.programs import command as program
from tests.web.people import ADA, ANN, BOB, EVE, MEL, OLGA, SERVICE, System


def test_a_task_is_whoever_calls(system: System) -> None:
    """The kernel says who that is, and nobody can say otherwise."""
    system.start()
    task = system.submit(ANN)
    assert system.json(ANN, "show", task)["user"] == f"uid-{ANN}"
    wrong = system.refusal(BOB, "submit", "--user", f"uid-{ANN}", "--prompt", "x", code=2)
    assert f"user: this is uid-{ANN}'s, but uid-{BOB} submits it" in wrong
    assert f"uid-{EVE} may not use this queue" in system.refusal(EVE, "submit", "--prompt", "x", code=5)
    assert "root cannot submit tasks" in system.refusal(0, "submit", "--prompt", "x", code=5)
    assert [one["id"] for one in system.json(ADA, "list")] == [task]


def test_others_see_that_it_is_there(system: System) -> None:
    """By CLI, with every command that reads: id, user, project, priority, state and times, and no more."""
    system.start()
    task = system.submit(ANN, "--title", "hidden", "--project", "shared")
    for uid in (BOB, OLGA, EVE):
        for words in (("list",), ("show", task), ("events",), ("events", "--task", task), ("status",), ("locks",)):
            for said in (system.run(uid, *words).stdout, system.run(uid, *words, "--json").stdout):
                assert "hidden" not in said
                assert "secret" not in said
        assert f"task {task} is uid-{ANN}'s: only its owner or an admin may read it" in system.refusal(
            uid, "logs", task, code=5
        )
        system.refusal(uid, "why", task, code=5)
    assert f"The rest is for uid-{ANN}" in system.run(BOB, "show", task).stdout
    for uid in (ANN, MEL, ADA, 0, SERVICE):
        assert system.json(uid, "show", task)["prompt"] == "secret"


def test_others_tasks_are_not_theirs_to_change(system: System) -> None:
    """Each refusal says whose it is; operators stop and reorder."""
    system.start()
    task = system.submit(ANN)
    wrong = system.refusal(BOB, "cancel", task[-10:-3], code=5)
    assert f"task {task} is uid-{ANN}'s: only its owner, an operator or an admin may cancel it." in wrong
    for words in (("change", task, "--title", "x"), ("retry", task), ("requeue", task), ("pause",), ("drain",)):
        system.refusal(BOB, *words, code=5)
    system.run(OLGA, "change", task, "--priority", "low")
    system.run(OLGA, "pause", f"user:uid-{ANN}")
    assert f"was paused by uid-{OLGA}" in system.refusal(ANN, "resume", f"user:uid-{ANN}", code=5)
    system.run(OLGA, "cancel", task)
    assert system.json(ANN, "show", task)["events"][-1]["by"] == f"uid-{OLGA}"
    system.run(ANN, "retry", task)


def test_files_are_the_services_own(system: System) -> None:
    """Whoever comes by the file system finds nothing; what root does leaves no file of root's."""
    system.start()
    system.submit(ANN)
    system.run(0, "pause", "--reason", "root was here")
    for folder, _, names in os.walk(system.paths.home):
        for name in (folder, *(os.path.join(folder, name) for name in names)):
            status = os.lstat(name)
            assert status.st_uid == SERVICE, name
            assert not status.st_mode & 0o066, name
    assert os.stat(system.paths.api).st_mode & 0o777 == 0o666


def test_root_needs_no_service(system: System) -> None:
    """He opens the store himself, as the service's account, and stays root to the queue."""
    system.start()
    task = system.submit(ANN)
    system.stop()
    system.run(0, "cancel", task)
    assert system.json(0, "show", task)["events"][-1]["by"] == "root"
    said = system.refusal(ANN, "list", code=6)
    assert f"the service does not run: nobody listens at {system.paths.api}" in said
    assert "systemctl enable --now fairlead.target" in said
    assert "only root may do that" in system.refusal(ANN, "prune", code=5)


def test_holding_a_lock_over_the_socket(system: System) -> None:
    """The command runs as its user; the lock is his command's, and free when it has ended or was killed."""
    system.start()
    done = system.run(ANN, "lock", "hold", f"uid-{ANN}", "--", "sh", "-c", "id -u; exit 3", code=3)
    assert done.stdout.strip() == str(ANN)
    assert system.json(ANN, "locks") == {"locks": [], "foreign": []}
    [past] = system.json(ANN, "locks", "--past")
    assert past["evidence"]["exit_code"] == 3
    assert "only an operator or an admin may hold the lock" in system.refusal(
        BOB, "lock", "hold", f"uid-{ANN}", "--", "true", code=5
    )
    command = program("web", "command", ANN, "lock", "hold", f"uid-{ANN}", "--", "sleep", "60")
    with subprocess.Popen(command, cwd=ROOT, env=system.environ) as holder:
        [lock] = eventually(lambda: system.json(BOB, "locks")["locks"], "nobody holds it")
        assert lock["acquired_by_pid"] == holder.pid
        assert "was not free within 0 s" in system.refusal(
            ANN, "lock", "hold", f"uid-{ANN}", "--timeout", "0", "--", "true", code=5
        )
        assert "is alive" in system.refusal(ANN, "lock", "release", f"uid-{ANN}", code=5)
        holder.kill()
        holder.wait(PATIENCE)
    system.run(ANN, "lock", "release", f"uid-{ANN}")
    assert system.json(BOB, "locks")["locks"] == []


def test_a_lock_is_its_commands_though_the_service_goes(system: System) -> None:
    """The command's exit code counts; the lock is freed once its holder is seen to be gone."""
    system.start()
    command = program("web", "command", ANN, "lock", "hold", f"uid-{ANN}", "--", "sh", "-c", "read line; exit 3")
    with subprocess.Popen(
        command, cwd=ROOT, env=system.environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        eventually(lambda: system.json(0, "locks")["locks"], "nobody holds it")
        system.stop()
        _, said = holder.communicate("\n", timeout=PATIENCE)
    assert (holder.returncode, "is free when the watchdog has seen" in said) == (3, True)
    system.run(0, "lock", "release", f"uid-{ANN}")
    assert system.json(0, "locks")["locks"] == []


def test_root_holds_a_lock_as_root(system: System) -> None:
    """Its command is not the service's, so root asks the socket like everybody."""
    system.start()
    assert system.run(0, "lock", "hold", f"uid-{ANN}", "--", "id", "-u").stdout.strip() == "0"


def test_waiting_over_the_socket(system: System) -> None:
    """`wait`, `events -f` and `submit --wait` are told when something happens."""
    system.start()
    task = system.submit(ANN)
    command = program("web", "command", ANN, "wait", task)
    with subprocess.Popen(command, cwd=ROOT, env=system.environ, stdout=subprocess.PIPE, text=True) as one:
        system.run(OLGA, "cancel", task)
        assert one.communicate(timeout=PATIENCE)[0] == f"{task} cancelled: cancelled by uid-{OLGA} before it started\n"
    assert one.returncode == 1
    assert "not ended in time" in system.refusal(ANN, "wait", system.submit(ANN), "--timeout", "0.1s", code=6)


def test_poison_text_stays_text(system: System) -> None:
    """Through socket and terminal nothing is obeyed that was only to be shown."""
    system.start()
    task = system.submit(ANN, "--title", "a\x1b[2J\x9b\u202eb", "--project", "shared")
    system.run(OLGA, "pause", f"user:uid-{ANN}", "--reason", "\x1b]0;x\x07")
    for words in (("show", task), ("list",), ("events",), ("why", task)):
        said = system.run(MEL, *words).stdout
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(said)


def test_settings_are_read_again(system: System) -> None:
    """HUP, and who may use it is known anew; wrong settings change nothing."""
    system.start()
    assert system.service
    config = Path(system.paths.config_file)
    before = config.read_text(encoding="utf-8")
    config.write_text(before.replace(f"- uid-{BOB}\n", f"- uid-{BOB}\n  - uid-{EVE}\n"), encoding="utf-8")
    system.service.send_signal(1)
    eventually(
        lambda: (
            subprocess.run(
                program("web", "command", EVE, "submit", "--prompt", "x"),
                cwd=ROOT,
                env=system.environ,
                capture_output=True,
                check=False,
            ).returncode
            == 0
        ),
        "the settings are not read again",
    )
    config.write_text("nonsense: 1\n", encoding="utf-8")
    system.service.send_signal(1)
    eventually(
        lambda: system.submit(EVE) and "settings_refused" in Path(system.paths.log_file).read_text("utf-8"),
        "nobody complains",
    )
