"""task.json: everything a supervisor needs to start and watch an agent, so that anything can start it."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.base.clock import iso
from fairlead.base.errors import RefusedError
from fairlead.base.files import read_plain
from fairlead.config.paths import Paths
from fairlead.config.schema import Agent, Config, Project
from fairlead.queue.store import Claim
from fairlead.queue.task import PRIORITIES, Spec, Task

NAME = "task.json"
PROMPT = "prompt.txt"
RESULT = "result.json"
PROGRESS = "progress"
#: Set for every process of a run, and inherited by what it starts: finds them again.
MARKER = "FAIRLEAD_LOCK_ID"


class CannotLaunchError(RefusedError):
    """The task cannot be started as things are configured."""


class Launch(Struct, kw_only=True, frozen=True):
    """How to start an agent, and the limits to hold it to."""

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: str | None
    timeout: float
    grace: float
    stop_signal: str
    heartbeat: float
    output_bytes: int
    result_bytes: int
    artifacts: tuple[str, ...]
    artifacts_max: int
    bells: str
    #: The task for the agent to read.
    task: dict[str, Any]


_decode = msgspec.json.Decoder(Launch).decode


def read_launch(run_dir: str) -> Launch:
    """Read a run's task.json."""
    return _decode(read_plain(os.path.join(run_dir, NAME), 64 << 20))


def prepare_launch(claim: Claim, run_dir: str, config: Config, paths: Paths, environ: Mapping[str, str]) -> Launch:
    """Work out program, place, environment and limits; refuse what cannot work."""
    spec = claim.task.spec
    agent = _agent(spec, config)
    project = config.projects.get(spec.project)
    cwd = _directory(spec, project, paths)
    env = _environment(claim, run_dir, agent, project, config, environ)
    values = _placeholders(claim.task, run_dir, cwd)
    argv = spec.command or tuple(expand(part, values) for part in agent.command)
    return Launch(
        argv=(_program(argv[0], env, cwd), *argv[1:]),
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
    )


def expand(template: str, values: Mapping[str, str]) -> str:
    """Fill a template's placeholders; the values are never looked at again, so a prompt may hold braces."""
    return template.format_map(values)


def _agent(spec: Spec, config: Config) -> Agent:
    agent = config.agents.get(spec.agent)
    if agent is None:
        known = ", ".join(sorted(config.agents))
        raise CannotLaunchError(f"agent {spec.agent!r} is not configured any more; there are: {known}.")
    return agent


def _directory(spec: Spec, project: Project | None, paths: Paths) -> str:
    path = os.path.expanduser(project.path) if project else paths.home
    if not os.path.isdir(path):
        raise CannotLaunchError(
            f"project {spec.project!r} is at {path}, which is not a directory; make it, then retry."
        )
    return path


def _environment(
    claim: Claim,
    run_dir: str,
    agent: Agent,
    project: Project | None,
    config: Config,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """An allow-list of ours, then what agent, project and task add, then Fairlead's own names."""
    spec = claim.task.spec
    env = {name: environ[name] for name in config.environment if name in environ}
    env |= agent.env | (project.env if project else {}) | spec.env
    return env | {
        MARKER: claim.lock_id,
        "FAIRLEAD_TASK_ID": claim.task.id,
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
    """The absolute path of the program, by the agent's own PATH."""
    where = os.path.join(cwd, name) if "/" in name else name
    found = shutil.which(where, path=env.get("PATH", os.defpath))
    if found is None:
        raise CannotLaunchError(f"there is no program {name!r} on the agent's PATH; install it, then retry.")
    return os.path.abspath(found)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _readable(task: Task) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(task.spec)
    times = {"created_at": iso(task.created_at), "run_at": iso(task.spec.run_at)}
    return {"id": task.id, "attempt": task.attempt} | data | {"priority": PRIORITIES[task.spec.priority]} | times
