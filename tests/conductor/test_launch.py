"""Working out how a task is started: program, arguments, place, environment, limits, and what is refused."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.conductor.launch import CannotLaunchError, expand, prepare_launch
from fairlead.conductor.orders import Launch, read_launch
from fairlead.config.paths import Kind, Paths
from fairlead.config.schema import Agent, Config, Limits, Project, Sandbox
from fairlead.queue.states import Status
from fairlead.queue.store import Claim, Holder, Lock
from fairlead.queue.task import Spec, Task

NOW = 1_800_000_000_000
RUN_DIR = "/conductor/demo/active/task-1.2"


def claim(**spec: Any) -> Claim:  # noqa: ANN401 - fields of Spec
    """A claimed task, second attempt."""
    asked = {"user": "ann", "project": "demo", "agent": "echo", "action": "run"} | spec
    task = Task(
        id="task-1",
        seq=1,
        spec=Spec(**asked),
        status=Status.CLAIMED,
        version=1,
        created_at=NOW,
        updated_at=NOW,
        attempt=2,
        token=7,
    )
    lock = Lock(
        name="user:ann",
        lock_id="lock-7",
        token=7,
        task_id="task-1",
        kind="run",
        state="held",
        acquired_at=NOW,
        expires_at=NOW,
        holder=Holder(host="h", boot_id="b", pid=1, start=1),
    )
    return Claim(task=task, lock=lock)


def config(path: Path, *command: str, **changes: Any) -> Config:  # noqa: ANN401 - fields of Config
    """Settings with one agent and one project."""
    parts: dict[str, Any] = {
        "agents": {"echo": Agent(command=command or ("echo",))},
        "projects": {"demo": Project(path=str(path))},
    }
    return Config(**parts | changes)


def prepare(path: Path, made: Claim, settings: Config, environ: Mapping[str, str] | None = None) -> Launch:
    """The orders for that task."""
    return prepare_launch(made, RUN_DIR, settings, Paths(str(path)), {"PATH": "/bin"} if environ is None else environ)


# --- Program and arguments ---


def test_placeholders_are_filled(tmp_path: Path) -> None:
    """Every placeholder stands for what its description says; doubled braces are braces."""
    command = ("echo", "{prompt}", "{prompt_file}|{task_file}|{result_file}|{run_dir}", "{project_path}", "{{{id}}}")
    launch = prepare(tmp_path, claim(prompt="do it"), config(tmp_path, *command, "-u{user}", "-p{project}"))
    assert launch.argv == (
        "/bin/echo",
        "do it",
        f"{RUN_DIR}/prompt.txt|{RUN_DIR}/task.json|{RUN_DIR}/result.json|{RUN_DIR}",
        str(tmp_path),
        "{task-1}",
        "-uann",
        "-pdemo",
    )


@pytest.mark.parametrize("prompt", ["{id} {0} {} {prompt}", "}{", "{{x}}", "$(rm -rf /)", "a\nb", "%s", "-rf"])
def test_a_prompt_is_never_looked_into(tmp_path: Path, prompt: str) -> None:
    """Whatever a prompt holds, it is one argument, as it is."""
    assert prepare(tmp_path, claim(prompt=prompt), config(tmp_path, "echo", "{prompt}")).argv[1:] == (prompt,)
    assert expand("{prompt}", {"prompt": prompt}) == prompt


def test_a_tasks_own_command_is_taken_as_it_is(tmp_path: Path) -> None:
    """A command in the task replaces the agent's, and nothing in it is a placeholder."""
    launch = prepare(tmp_path, claim(command=("cat", "{prompt}")), config(tmp_path))
    assert launch.argv == ("/bin/cat", "{prompt}")


def test_the_program_is_found_by_the_agents_path(tmp_path: Path) -> None:
    """PATH as the agent will have it decides, whoever of agent, project and task sets it."""
    tool = executable(tmp_path / "tools" / "tool")
    settings = config(tmp_path, "tool")
    assert prepare(tmp_path, claim(env={"PATH": f"/nowhere:{tool.parent}"}), settings).argv == (str(tool),)
    with pytest.raises(CannotLaunchError, match="no program 'tool' on the agent's PATH"):
        prepare(tmp_path, claim(), settings)


@pytest.mark.parametrize(("name", "path"), [("./tool", "/bin"), ("bin/../tool", "/bin"), ("tool", ""), ("tool", ".")])
def test_a_relative_program_is_in_the_working_directory(tmp_path: Path, name: str, path: str) -> None:
    """What is relative, in the name or in PATH, is relative to where the agent stands, not to where the daemon does."""
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "tool")
    launch = prepare(tmp_path, claim(), config(tmp_path, name), {"PATH": path})
    assert launch.argv == (str(tmp_path / "tool"),)


def test_without_a_path_there_is_the_systems(tmp_path: Path) -> None:
    """An environment without PATH finds the system's programs."""
    assert prepare(tmp_path, claim(), config(tmp_path, "sh"), {}).argv == ("/bin/sh",)


@pytest.mark.parametrize("kind", ["missing", "not executable", "directory", "empty"])
def test_what_is_no_program_is_refused(tmp_path: Path, kind: str) -> None:
    """A name without a program behind it is refused with a sentence that says what to do."""
    match kind:
        case "not executable":
            (tmp_path / "tool").touch(0o600)
        case "directory":
            (tmp_path / "tool").mkdir()
    name = "" if kind == "empty" else "./tool"
    with pytest.raises(CannotLaunchError, match="install it, then retry"):
        prepare(tmp_path, claim(), config(tmp_path, name))


def executable(path: Path) -> Path:
    """A program."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return path


# --- Place ---


def test_a_task_without_a_project_works_in_the_instances_home(tmp_path: Path) -> None:
    """The default project has no tree of its own, unless it is configured."""
    assert prepare(tmp_path, claim(project="default"), config(tmp_path / "nowhere")).cwd == str(tmp_path)


def test_an_unknown_project_is_refused(tmp_path: Path) -> None:
    """Its agent must not be let loose in the directory where the queue lives."""
    with pytest.raises(CannotLaunchError, match=r"knows no project 'other', only: default, demo; .*HUP"):
        prepare(tmp_path, claim(project="other"), config(tmp_path))


def test_a_home_directory_may_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde in a project's path is the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tree").mkdir()
    assert prepare(tmp_path, claim(), config(Path("~/tree"))).cwd == str(tmp_path / "tree")


def test_a_project_without_its_directory_is_refused(tmp_path: Path) -> None:
    """The sentence names the project and the place."""
    with pytest.raises(CannotLaunchError, match=r"'demo' is at /nowhere, which is not a directory; make it"):
        prepare(tmp_path, claim(), config(Path("/nowhere")))


def test_an_agent_that_is_gone_is_refused(tmp_path: Path) -> None:
    """A task that waited while its agent was removed from the settings is told which there are."""
    with pytest.raises(CannotLaunchError, match=r"the daemon knows no agent 'gone', only: echo; .*HUP"):
        prepare(tmp_path, claim(agent="gone"), config(tmp_path))


# --- Environment ---


def test_the_environment_is_an_allow_list(tmp_path: Path) -> None:
    """Of the daemon's environment only the listed names reach the agent."""
    environ = {"PATH": "/bin", "LANG": "C", "SECRET": "x", "LD_PRELOAD": "/evil.so", "FAIRLEAD_HOME": "/h"}
    env = prepare(tmp_path, claim(), config(tmp_path), environ).env
    assert {name: value for name, value in env.items() if not name.startswith("FAIRLEAD_")} == {
        "PATH": "/bin",
        "LANG": "C",
    }
    assert "FAIRLEAD_HOME" not in env
    assert "LANG" not in prepare(tmp_path, claim(), config(tmp_path, environment=("PATH",)), environ).env


def test_task_overrides_project_overrides_agent(tmp_path: Path) -> None:
    """Each adds to the allow-list, and the nearer to the task the stronger."""
    settings = config(
        tmp_path,
        agents={"echo": Agent(command=("echo",), env={"A": "agent", "B": "agent", "C": "agent", "LANG": "agent"})},
        projects={"demo": Project(path=str(tmp_path), env={"B": "project", "C": "project"})},
    )
    env = prepare(tmp_path, claim(env={"C": "task"}), settings, {"PATH": "/bin", "LANG": "C"}).env
    assert [env[name] for name in ("A", "B", "C", "LANG")] == ["agent", "project", "task", "agent"]


def test_fairleads_own_names_cannot_be_taken(tmp_path: Path) -> None:
    """What the agent is told of its run is true, whatever the task sets."""
    own = {
        "FAIRLEAD_LOCK_ID": "lock-7",
        "FAIRLEAD_TASK_ID": "task-1",
        "FAIRLEAD_ATTEMPT": "2",
        "FAIRLEAD_USER": "ann",
        "FAIRLEAD_PROJECT": "demo",
        "FAIRLEAD_RUN_DIR": RUN_DIR,
        "FAIRLEAD_RESULT": f"{RUN_DIR}/result.json",
        "FAIRLEAD_PROGRESS": f"{RUN_DIR}/progress",
    }
    env = prepare(tmp_path, claim(env=dict.fromkeys(own, "forged")), config(tmp_path)).env
    assert {name: value for name, value in env.items() if name.startswith("FAIRLEAD_")} == own


# --- Limits, prompt and task ---


@pytest.mark.parametrize(
    ("task", "project", "agent", "limit"),
    [
        (1.0, 2.0, 3.0, 1.0),
        (None, 2.0, 3.0, 2.0),
        (None, None, 3.0, 3.0),
        (None, None, None, 4.0),
        (0.0, 2.0, 3.0, 0.0),
    ],
)
def test_the_nearest_time_limit_counts(
    tmp_path: Path, task: float | None, project: float | None, agent: float | None, limit: float
) -> None:
    """A task's limit goes before its project's, that before its agent's, that before the instance's; 0 counts."""
    settings = config(
        tmp_path,
        agents={"echo": Agent(command=("echo",), timeout=agent)},
        projects={"demo": Project(path=str(tmp_path), timeout=project)},
        limits=Limits(timeout=4.0, grace=5.0),
    )
    launch = prepare(tmp_path, claim(timeout=task), settings)
    assert (launch.timeout, launch.grace) == (limit, 5.0)
    assert prepare(tmp_path, claim(grace=0.0), settings).grace == 0.0


@pytest.mark.parametrize("prompt", ["do it", ""])
def test_an_agent_may_read_its_prompt(tmp_path: Path, prompt: str) -> None:
    """Standard input is the prompt's file if the agent wants it, an empty one too; nothing otherwise."""
    reader = config(tmp_path, agents={"echo": Agent(command=("cat",), stdin="prompt")})
    assert prepare(tmp_path, claim(prompt=prompt), reader).stdin == f"{RUN_DIR}/prompt.txt"
    assert prepare(tmp_path, claim(prompt=prompt), config(tmp_path)).stdin is None


def test_the_task_is_there_to_read(tmp_path: Path) -> None:
    """The agent finds its task in task.json, for people: a priority by name, times as dates."""
    made = claim(prompt="p", priority=1, run_at=0, payload={"n": 1}, artifacts=("*.txt",))
    launch = prepare(tmp_path, made, config(tmp_path))
    assert launch.artifacts == ("*.txt",)
    told = {"id": "task-1", "attempt": 2, "user": "ann", "prompt": "p", "priority": "high", "payload": {"n": 1}}
    assert told.items() <= launch.task.items()
    assert launch.task["run_at"] == "1970-01-01T00:00:00.000+00:00"
    assert launch.task["created_at"].startswith("2027-01-15T08:00:00")


def test_orders_are_read_as_they_were_written(tmp_path: Path) -> None:
    """What the dispatcher worked out is what the supervisor gets."""
    launch = prepare(tmp_path, claim(prompt="äöü\n"), config(tmp_path, "echo", "{prompt}"))
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(launch))
    assert read_launch(str(tmp_path)) == launch
    assert os.path.isabs(launch.argv[0])


# --- The system's instance ---


def system(path: Path) -> Paths:
    """The host's instance, in a place of the test's."""
    return Paths(str(path), spool="/var/spool/fairlead", kind=Kind.SYSTEM)


def prepare_for(path: Path, made: Claim, settings: Config, environ: Mapping[str, str] | None = None) -> Launch:
    """The orders for a task of a user of the host."""
    return prepare_launch(made, RUN_DIR, settings, system(path), environ or {}, "/run/porter.sock")


def test_another_users_agent_has_the_environment_of_his_login(tmp_path: Path) -> None:
    """Nothing of the daemon's but what the settings name, and of that not what a login sets."""
    entry = pwd.getpwnam("bin")
    ours = {"HOME": "/root", "PATH": "/root/bin", "LANG": "C", "SECRET": "x", "USER": "root", "LOGNAME": "root"}
    env = prepare_for(tmp_path, claim(user="bin"), config(tmp_path, environment=("LANG", "HOME", "PATH")), ours).env
    assert {name: value for name, value in env.items() if not name.startswith("FAIRLEAD_")} == {
        "LANG": "C",
        "HOME": entry.pw_dir,
        "USER": "bin",
        "LOGNAME": "bin",
        "SHELL": entry.pw_shell,
        "PATH": f"{entry.pw_dir}/.local/bin:/usr/local/bin:/usr/bin:/bin",
    }


def test_another_users_agent_finds_its_files_in_his_spool(tmp_path: Path) -> None:
    """The run directory itself is out of his reach."""
    settings = config(tmp_path, "cat", "{prompt_file}", "{task_file}", "{result_file}", "{run_dir}")
    launch = prepare_for(tmp_path, claim(user="bin"), settings)
    place = "/var/spool/fairlead/bin/.runs/task-1.2"
    assert launch.argv == ("cat", f"{place}/prompt.txt", f"{place}/task.json", f"{place}/result.json", place)
    names = ("FAIRLEAD_RUN_DIR", "FAIRLEAD_RESULT", "FAIRLEAD_PROGRESS")
    assert [launch.env[name] for name in names] == [place, f"{place}/result.json", f"{place}/progress"]
    assert not any(RUN_DIR in value for value in (*launch.argv, *launch.env.values()))


def test_a_home_in_a_projects_path_is_the_users(tmp_path: Path) -> None:
    """Not that of the service; whether it is there he finds out himself."""
    settings = config(tmp_path, projects={"demo": Project(path="~/work")})
    assert prepare_for(tmp_path, claim(user="bin"), settings).cwd == f"{pwd.getpwnam('bin').pw_dir}/work"


def test_a_user_who_has_gone_is_at_home_nowhere(tmp_path: Path) -> None:
    """His tasks can be worked out all the same: whoever starts them says what is wrong."""
    launch = prepare_for(tmp_path, claim(user="gone-since"), config(tmp_path))
    assert (launch.env["HOME"], launch.env["SHELL"]) == ("/", "/bin/sh")


def test_another_users_agent_runs_in_a_unit_as_him(tmp_path: Path) -> None:
    """Its name says which attempt it is; whatever the task says, the user is its owner."""
    unit = prepare_for(tmp_path, claim(user="bin", env={"USER": "root"}), config(tmp_path)).unit
    assert unit
    assert (unit.name, unit.by, unit.user) == ("fairlead-run-task-1.2.service", "/run/porter.sock", "bin")
    own = prepare_launch(claim(), RUN_DIR, config(tmp_path), Paths(str(tmp_path)), {"PATH": "/bin"}, "user").unit
    assert own
    assert (own.by, own.user) == ("user", None)


def test_the_most_particular_settings_of_a_sandbox_count(tmp_path: Path) -> None:
    """A project's before an agent's before the instance's, one by one; paths from all, its tree and drop-off first."""
    settings = config(
        tmp_path,
        agents={
            "echo": Agent(command=("echo",), sandbox=Sandbox(tasks_max=2, network=False, read_write_paths=("/b",)))
        },
        projects={
            "demo": Project(
                path=str(tmp_path), sandbox=Sandbox(memory_max=3, network=True, read_write_paths=("/c", "/a"))
            )
        },
        sandbox=Sandbox(tasks_max=1, memory_max=1, private_tmp=True, read_write_paths=("/a",)),
    )
    unit = prepare_for(tmp_path, claim(user="bin"), settings).unit
    assert unit
    wanted = {"tasks_max": 2, "memory_max": 3, "network": True, "private_tmp": True}
    assert wanted.items() <= unit.sandbox.items()
    drop_off = "/var/spool/fairlead/bin/.runs/task-1.2"
    assert unit.sandbox["read_write_paths"] == [str(tmp_path), drop_off, "/a", "/b", "/c"]
