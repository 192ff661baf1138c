"""Working out how a task is started: program, place, environment and limits."""

import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fairlead.base.clock import iso
from fairlead.base.errors import RefusedError
from fairlead.base.identity import home_of, shell_of
from fairlead.conductor.errands import RUNS
from fairlead.conductor.orders import MARKER, NAME, PROGRESS, PROMPT, RESULT, TASK_MARKER, InUnit, Launch
from fairlead.config.paths import Paths
from fairlead.config.places import directory_of
from fairlead.config.schema import Agent, Config, Project, Sandbox
from fairlead.queue.store import Claim
from fairlead.queue.task import PRIORITIES, Spec, Task
from fairlead.systemd.unit import unit_of

_LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin"


class CannotLaunchError(RefusedError):
    """The task cannot be started as things are configured."""


def prepare_launch(
    claim: Claim, run_dir: str, config: Config, paths: Paths, environ: Mapping[str, str], starter: str = ""
) -> Launch:
    """Work out program, place, environment and limits; refuse what cannot work.

    `starter` says who starts its unit; without one the agent is to be a child of its supervisor.
    """
    spec = claim.task.spec
    agent = _agent(spec, config)
    project = config.projects.get(spec.project)
    cwd = _directory(spec, config, paths)
    drop_off = drop_off_of(claim.task, paths) if paths.is_system else run_dir
    env = _environment(claim, drop_off, agent, project, _inherited(spec.user, config, paths, environ))
    values = _placeholders(claim.task, drop_off, cwd)
    argv = spec.command or tuple(expand(part, values) for part in agent.command)
    program = argv[0] if paths.is_system else _program(argv[0], env, cwd)  # his clerk finds it as the user does
    return Launch(
        argv=(program, *argv[1:]),
        cwd=cwd,
        env=env,
        stdin=values["prompt_file"] if agent.stdin == "prompt" else None,
        timeout=_first(spec.timeout, project.timeout if project else None, agent.timeout, config.limits.timeout),
        grace=_first(spec.grace, config.limits.grace),
        stop_signal=agent.stop_signal,
        heartbeat=config.intervals.heartbeat,
        output_bytes=config.limits.output_bytes,
        result_bytes=config.limits.result_bytes,
        artifacts=spec.artifacts,
        artifacts_max=config.limits.artifacts,
        bells=paths.bells,
        task=_readable(claim.task),
        unit=_unit(claim.task, (cwd, drop_off), agent, project, config, paths, starter) if starter else None,
    )


def drop_off_of(task: Task, paths: Paths) -> str:
    """Where an agent of another user finds what it is to read, and leaves its result: in that user's spool."""
    return os.path.join(paths.spool, task.spec.user, RUNS, f"{task.id}.{task.attempt}")


def _unit(
    task: Task,
    writable: tuple[str, ...],
    agent: Agent,
    project: Project | None,
    config: Config,
    paths: Paths,
    starter: str,
) -> InUnit:
    return InUnit(
        name=unit_of(task.id, task.attempt),
        description=f"{task.spec.agent} for {task.spec.user}: task {task.id}, attempt {task.attempt}",
        by=starter,
        user=task.spec.user if paths.is_system else None,
        sandbox=_sandbox(writable, config.sandbox, agent.sandbox, project.sandbox if project else Sandbox()),
    )


def _sandbox(writable: tuple[str, ...], *layers: Sandbox) -> dict[str, Any]:
    """What the run may use and reach: of the settings the most particular one, paths from all."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in msgspec.structs.asdict(layer).items() if value is not None}
    paths = [path for layer in layers for path in layer.read_write_paths]
    return merged | {"read_write_paths": [*dict.fromkeys((*writable, *paths))]}


def expand(template: str, values: Mapping[str, str]) -> str:
    """Fill a template's placeholders; the values are never looked at again, so a prompt may hold braces."""
    return template.format_map(values)


def _agent(spec: Spec, config: Config) -> Agent:
    agent = config.agents.get(spec.agent)
    if agent is None:
        raise CannotLaunchError(_not_known("agent", spec.agent, config.agents))
    return agent


def _not_known(kind: str, name: str, known: Iterable[str]) -> str:
    return (
        f"the daemon knows no {kind} {name!r}, only: {', '.join(sorted(known))}; if it is in the settings, send the "
        "daemon HUP so that it reads them again, then retry."
    )


def _directory(spec: Spec, config: Config, paths: Paths) -> str:
    """Where the agent works. Only tasks without a project work at home: that is where the queue itself lives."""
    project = config.projects.get(spec.project)
    if project is None and spec.project != config.default_project:
        raise CannotLaunchError(_not_known("project", spec.project, {*config.projects, config.default_project}))
    path = directory_of(spec.project, config, paths, spec.user)
    if not paths.is_system and not os.path.isdir(path):  # there it is another user's, who looks for himself
        raise CannotLaunchError(
            f"project {spec.project!r} is at {path}, which is not a directory; make it, then retry."
        )
    return path


def _inherited(user: str, config: Config, paths: Paths, environ: Mapping[str, str]) -> dict[str, str]:
    """An allow-list of our own environment; of another user's agent with what a login would set."""
    env = {name: environ[name] for name in config.environment if name in environ}
    if not paths.is_system:
        return env
    home, shell = home_of(user), shell_of(user)
    path = f"{home}/.local/bin:{_LOGIN_PATH}"
    return env | {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell, "PATH": path}


def _environment(
    claim: Claim,
    run_dir: str,
    agent: Agent,
    project: Project | None,
    inherited: dict[str, str],
) -> dict[str, str]:
    """What is inherited, then what agent, project and task add, then Fairlead's own names."""
    spec = claim.task.spec
    env = inherited | agent.env | (project.env if project else {}) | spec.env
    return env | {
        MARKER: claim.lock_id,
        TASK_MARKER: claim.task.id,
        "FAIRLEAD_ATTEMPT": str(claim.task.attempt),
        "FAIRLEAD_USER": spec.user,
        "FAIRLEAD_PROJECT": spec.project,
        "FAIRLEAD_RUN_DIR": run_dir,
        "FAIRLEAD_RESULT": os.path.join(run_dir, RESULT),
        "FAIRLEAD_PROGRESS": os.path.join(run_dir, PROGRESS),
    }


def _placeholders(task: Task, run_dir: str, cwd: str) -> dict[str, str]:
    return {
        "prompt": task.spec.prompt,
        "prompt_file": os.path.join(run_dir, PROMPT),
        "task_file": os.path.join(run_dir, NAME),
        "result_file": os.path.join(run_dir, RESULT),
        "project_path": cwd,
        "run_dir": run_dir,
        "id": task.id,
        "user": task.spec.user,
        "project": task.spec.project,
    }


def _program(name: str, env: Mapping[str, str], cwd: str) -> str:
    """The absolute path of the program, by the agent's own PATH, seen from where the agent will stand."""
    where = os.path.join(cwd, name) if "/" in name else name
    places = [os.path.join(cwd, place) for place in env.get("PATH", os.defpath).split(os.pathsep)]
    found = shutil.which(where, path=os.pathsep.join(places))
    if found is None:
        raise CannotLaunchError(f"there is no program {name!r} on the agent's PATH; install it, then retry.")
    return os.path.abspath(found)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _readable(task: Task) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(task.spec)
    times = {"created_at": iso(task.created_at), "run_at": iso(task.spec.run_at)}
    return {"id": task.id, "attempt": task.attempt} | data | {"priority": PRIORITIES[task.spec.priority]} | times
