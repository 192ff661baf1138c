"""Task files: what a person or a program drops becomes a validated Spec, or a list of all that is wrong.

docs/task-file.md is the reference for people.
"""

import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, TypeVar

from msgspec import Struct

from fairlead.base.durations import parse_duration
from fairlead.base.errors import UsageError
from fairlead.base.ids import check_name
from fairlead.base.text import near_miss, one_line
from fairlead.config.schema import Agent, Config, Project
from fairlead.queue.documents import Document, DocumentError, Path, parse_json, parse_markdown, parse_yaml
from fairlead.queue.task import PRIORITIES, Spec

#: How a file is read is decided by the end of its name.
FORMATS: dict[str, Callable[[bytes], Document]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
    ".md": parse_markdown,
    ".markdown": parse_markdown,
}
KEYS = (
    "title",
    "prompt",
    "command",
    "payload",
    "agent",
    "action",
    "type",
    "project",
    "user",
    "priority",
    "run_at",
    "timeout",
    "grace",
    "idempotent",
    "env",
    "artifacts",
    "source",
)
#: The longest single argument or variable Linux hands to a program: MAX_ARG_STRLEN less its final NUL.
MAX_ARGUMENT = 128 * 1024 - 1
MAX_TITLE = 200
MAX_SOURCE = 255
#: More than this many problems help nobody, and finding near misses for thousands would take long.
MAX_PROBLEMS = 20

_DEFAULT_TITLE = 80
_SHELL = ("/bin/sh", "-c")
#: Programs that run a prompt as a script.
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADING = re.compile(r"#{1,6}\s+")
#: The rank of each number from 0 to 10.
_NUMBERED = (0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3)
_NAMED = {**{name: rank for rank, name in enumerate(PRIORITIES)}, "normal": 2}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Years in which every zone's time can be computed; the instant itself is then checked to the millisecond.
_YEARS = range(1969, 3001)
_LATEST = (datetime(3000, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) - 1

T = TypeVar("T")
U = TypeVar("U")


class TaskFileError(UsageError):
    """The task file cannot be accepted."""

    def __init__(self, name: str, problems: Iterable[str], more: int = 0) -> None:
        self.problems = tuple(problems)
        count = len(self.problems) + more
        lines = [f"{one_line(name)}: {count} problem{'s' if count > 1 else ''}"]
        lines += [f"  {problem}" for problem in self.problems]
        lines += [f"  and {more} more"] if more else []
        super().__init__("\n".join(lines))

    @property
    def without_place(self) -> str:
        """The problems without a file's name and line, of one that nobody wrote: options became it."""
        return "; ".join(problem.removeprefix("line 1: ") for problem in self.problems)


class Parsed(Struct, frozen=True):
    """What a file asks for, and what its author should know about how it was read."""

    spec: Spec
    notes: tuple[str, ...] = ()


def parse_task(
    data: bytes,
    name: str,
    owner: str,
    config: Config,
    now_ms: int,
    *,
    config_file: str = "config.yaml",
    is_system: bool = False,
) -> Parsed:
    """Read the file `name`; it is `owner`'s unless the file, its project or the settings say otherwise.

    In the system's instance nothing can say otherwise: there `owner` is the kernel's word.
    """
    try:
        document = _format_of(name)(data)
    except DocumentError as error:
        raise TaskFileError(name, [one_line(str(error), 400)]) from None
    draft = _Draft(document, config, now_ms, config_file, is_system=is_system)
    spec = draft.read(name, owner)
    draft.refuse_problems(name)
    return Parsed(spec, tuple(draft.notes))


def parse_time(text: str, now_ms: int) -> tuple[int, str]:
    """Wall milliseconds from a time or an offset, and a note if it had to be read in the host's zone."""
    stripped = text.strip()
    if stripped.startswith("+"):
        return now_ms + round(_duration(stripped[1:]) * 1000), ""
    when = _moment(stripped)
    if when.tzinfo is not None:
        return _milliseconds(when), ""
    local = when.astimezone()
    note = f"{_show(stripped)} names no time zone; this host's is meant: {local.isoformat()}"
    return _milliseconds(local), note


def _format_of(name: str) -> Callable[[bytes], Document]:
    ending = os.path.splitext(name)[1].lower()
    if ending not in FORMATS:
        raise TaskFileError(name, [f"the name must end in {', '.join(FORMATS)}; rename the file"])
    return FORMATS[ending]


class _ItemsError(UsageError):
    """Some items of a list or a mapping are wrong."""

    def __init__(self, wrong: list[tuple[str | int, str]]) -> None:
        self.wrong = wrong
        super().__init__()


class _Draft:
    """One file on its way to a Spec: reads key after key and collects every problem."""

    def __init__(self, document: Document, config: Config, now_ms: int, config_file: str, *, is_system: bool) -> None:
        self.notes: list[str] = []
        self._document = document
        self._config = config
        self._now_ms = now_ms
        self._config_file = config_file
        self._is_system = is_system
        self._problems: list[tuple[int, str]] = []
        self._more = 0
        self._wrong: set[str | int] = set()

    def read(self, name: str, owner: str) -> Spec:
        """The Spec; of use only if there were no problems."""
        self._refuse_unknown_keys()
        project = self._project()
        settings = self._config.projects.get(project, Project(path=""))
        agent = self._agent(settings)
        prompt = self._field("prompt", _text, "")
        command = self._field("command", _command, ())
        payload = self._field("payload", _payload, {})
        self._need_work(prompt, command, payload, agent)
        self._check_prompt_fits(prompt, command, agent)
        if _format_of(name) is parse_markdown and prompt and not command:
            self._refuse_prose_as_script(agent)
        action = self._action(agent)
        return Spec(
            user=self._user(settings, owner),
            project=project,
            agent=agent,
            action=action,
            priority=self._field("priority", _priority, _NAMED[settings.priority or "medium"]),
            title=self._field("title", _title, _default_title(prompt, command, action)),
            prompt=prompt,
            command=command,
            payload=payload,
            run_at=self._field("run_at", self._run_at, None),
            timeout=self._field("timeout", _timeout, None),
            grace=self._field("grace", _duration, None),
            idempotent=self._field("idempotent", _boolean, False),
            env=self._field("env", _env, {}),
            artifacts=self._field("artifacts", _artifacts, ()),
            source=self._field("source", _source, one_line(name, MAX_SOURCE)),
            submitter=owner,
        )

    def refuse_problems(self, name: str) -> None:
        """Raise what has been found, in the order of the file."""
        if self._problems:
            texts = [text for _, text in sorted(self._problems, key=lambda problem: problem[0])]
            raise TaskFileError(name, texts, self._more)

    def _field(self, key: str, read: Callable[[object], T], default: U) -> T | U:
        """The key's value as `read` understands it; the default if it is absent, null or wrong."""
        value = self._document.data.get(key)
        if value is None:
            return default
        try:
            return read(value)
        except _ItemsError as error:
            for item, text in error.wrong:
                self._problem(text, key, item)
        except UsageError as error:
            self._problem(str(error), key)
        return default

    def _problem(self, text: str, *path: str | int) -> None:
        self._wrong.add(path[0])
        if len(self._problems) == MAX_PROBLEMS:
            self._more += 1
            return
        line = self._document.line_of(*path)
        place = f"line {line}: " if line else ""
        self._problems.append((line or 0, f"{place}{_label(path)}: {one_line(text.removesuffix('.'), 400)}"))

    def _refuse_unknown_keys(self) -> None:
        unknown = [key for key in self._document.data if key not in KEYS]
        for key in unknown[:MAX_PROBLEMS]:
            meant = _meant(key, KEYS) or f"; the keys are {', '.join(KEYS)}"
            self._problem(f"there is no such key{meant}", key)
            # Whoever meant to write one of these need not be told that it is missing.
            self._wrong |= {near_miss(key, KEYS)} & {"prompt", "command"}
        self._more += len(unknown[MAX_PROBLEMS:])

    def _project(self) -> str:
        project = self._field("project", _name("project"), self._config.default_project)
        # The default project may do without an entry: its tasks then run in the instance's home.
        if project != self._config.default_project and project not in self._config.projects:
            known = {self._config.default_project, *self._config.projects}
            where = f"add it under `projects` in {self._config_file}"
            self._problem(f"{_unknown('project', project, known)}; {where}", "project")
        return project

    def _agent(self, settings: Project) -> str:
        default = settings.agent or self._config.default_agent
        agent = self._field("agent", _name("agent"), default)
        if agent not in self._config.agents:
            self._problem(_unknown("agent", agent, self._config.agents), "agent")
        return agent

    def _action(self, agent: str) -> str:
        action = self._field("action", _name("action"), None)
        kind = self._field("type", _name("action"), None)
        if action and kind:
            self._problem("means the same as `action`; keep one of them", "type")
        return action or kind or agent

    def _user(self, settings: Project, owner: str) -> str:
        default = owner if self._is_system else settings.owner or self._config.default_user or owner
        user = self._field("user", _name("user"), default)
        if self._is_system and user != owner:
            self._problem(f"this is {user}'s, but {owner} submits it; leave the key out: your tasks are yours", "user")
        try:
            return check_name(user, "user")  # an owner is whatever the system calls him
        except UsageError as error:
            self._problem(str(error), "user")
            return user

    def _need_work(self, prompt: str, command: tuple[str, ...], payload: dict[str, Any], agent: str) -> None:
        explicit = self._document.data.get("agent") is not None
        takes_file = explicit and _passes(self._config.agents.get(agent), "{task_file}")
        known_wrong = self._wrong & {"prompt", "command", "payload", "agent"}
        if prompt.strip() or command or (payload and takes_file) or known_wrong:
            return
        self._problem("give a prompt or a command (or a payload and an agent whose command uses {task_file})", "prompt")

    def _check_prompt_fits(self, prompt: str, command: tuple[str, ...], agent: str) -> None:
        template = self._config.agents.get(agent)
        if command or not template:
            return
        arguments = (word.replace("{prompt}", prompt) for word in template.command if _holds(word, "{prompt}"))
        if any(len(argument.encode()) > MAX_ARGUMENT for argument in arguments):
            self._problem(
                f"has {len(prompt.encode())} bytes, and agent '{agent}' passes it as an argument, where "
                f"Linux takes at most {MAX_ARGUMENT}; use an agent with {{prompt_file}} or `stdin: prompt`",
                "prompt",
            )

    def _refuse_prose_as_script(self, agent: str) -> None:
        """Markdown is prose: a shell gets it only if the file itself says so."""
        template = self._config.agents.get(agent)
        if template and runs_prompt(template) and self._document.data.get("agent") is None:
            self._problem(
                f"agent '{agent}' would run this text as a shell script; name an agent in the front matter, like "
                "`agent: claude`, or use `command:`",
                "prompt",
            )

    def _run_at(self, value: object) -> int:
        instant, note = parse_time(_text(value), self._now_ms)
        self.notes += [f"run_at: {note}"] if note else []
        return instant


def runs_prompt(agent: Agent) -> bool:
    """Whether a shell gets the prompt as its script: in the word behind `-c`, as a file, or on standard input.

    A prompt that is an argument of somebody's script is none.
    """
    program, *words = agent.command
    if os.path.basename(program) not in _SHELLS:
        return False
    options = list(takewhile(lambda word: word.startswith("-"), words))
    following = words[len(options) :]
    if any("c" in option for option in options if not option.startswith("--")):
        return bool(following) and _holds(following[0], "{prompt}")
    return _holds(following[0], "{prompt_file}") if following else agent.stdin == "prompt"


# --- What each key may hold: the value as the Spec has it, or a UsageError that says what to write ---


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"must be text, not {_show(value)}; put it in quotes")
    return value


def _name(what: str) -> Callable[[object], str]:
    return lambda value: check_name(_short(_text(value)), what)


def _single_line(value: object, limit: int) -> str:
    text = _text(value)
    if text.splitlines() not in ([], [text]):
        raise UsageError("must be one line; put the rest into the prompt")
    if len(text) > limit:
        raise UsageError(f"has {len(text)} characters; at most {limit} are allowed")
    return text


def _title(value: object) -> str:
    return _single_line(value, MAX_TITLE)


def _source(value: object) -> str:
    return _single_line(value, MAX_SOURCE)


def _command(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [*_SHELL, value]
    if not isinstance(value, list) or not value:
        raise UsageError("must be a list of program and arguments, or one text for the shell")
    command = tuple(_each(enumerate(value), lambda _, word: _fits(_word(word))))
    if not command[0].strip() or (command[:-1] == _SHELL and not command[-1].strip()):
        raise UsageError("names no program to run")
    return command


def _payload(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("must be a mapping of keys to values")
    return value


def _priority(value: object) -> int:
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    if type(value) is int and 0 <= value < len(_NUMBERED):
        return _NUMBERED[value]
    meant = _meant(value, _NAMED) if isinstance(value, str) else ""
    raise UsageError(f"{_show(value)} is not a priority{meant or ': write ' + ', '.join(_NAMED) + ', or 0 to 10'}")


def _duration(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(_short(value))
    if isinstance(value, int | float):
        return parse_duration(value)
    raise UsageError(f"{_show(value)} is not a duration: write seconds, or a text like 90s, 15m, 1h30m, 2d")


def _timeout(value: object) -> float:
    seconds = _duration(value)
    if not seconds:
        raise UsageError("must be more than 0; leave it out for the configured limit")
    return seconds


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{_show(value)} is neither true nor false: write true or false, without quotes")
    return value


def _env(value: object) -> dict[str, str]:
    return dict(_each(_payload(value).items(), _variable))


def _variable(name: str, value: object) -> tuple[str, str]:
    if not _ENV_NAME.fullmatch(name):
        raise UsageError("is no name for a variable; use letters, digits and '_', no digit first")
    if name.startswith("FAIRLEAD_"):
        raise UsageError("names that start with FAIRLEAD_ are Fairlead's own; choose another")
    _fits(f"{name}={_word(value)}")
    return name, _word(value)


def _artifacts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UsageError("must be a list of patterns")
    return tuple(_each(enumerate(value), lambda _, pattern: _pattern(pattern)))


def _pattern(value: object) -> str:
    pattern = _text(value)
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise UsageError(f"{_show(pattern)} is not below the working directory; use no leading / and no '..'")
    return pattern


def _word(value: object) -> str:
    """An argument or a variable's value: text, or a whole number, whose text is beyond doubt."""
    return str(value) if type(value) is int else _text(value)


def _fits(argument: str) -> str:
    if (size := len(argument.encode())) > MAX_ARGUMENT:
        raise UsageError(f"has {size} bytes, and Linux passes at most {MAX_ARGUMENT}; keep it in a file")
    return argument


def _each(items: Iterable[tuple[Any, Any]], read: Callable[[Any, Any], T]) -> list[T]:
    """Read every item, so that all wrong ones are reported together."""
    good: list[T] = []
    wrong: list[tuple[str | int, str]] = []
    for key, value in items:
        try:
            good.append(read(key, value))
        except UsageError as error:
            wrong.append((key, str(error)))
    if wrong:
        raise _ItemsError(wrong)
    return good


# --- Times ---


def _moment(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{_show(text)} is not a time: write ISO 8601 like 2030-01-31T22:00:00+01:00, or +2h from now"
        ) from None
    if when.year not in _YEARS:
        raise _out_of_range(when)
    return when


def _milliseconds(when: datetime) -> int:
    instant = (when - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= instant <= _LATEST:
        raise _out_of_range(when)
    return instant


def _out_of_range(when: datetime) -> UsageError:
    return UsageError(f"{when.isoformat()} is out of range: write a time from 1970 to 2999")


# --- Templates ---


def _passes(agent: Agent | None, placeholder: str) -> bool:
    return agent is not None and any(_holds(word, placeholder) for word in agent.command)


def _holds(word: str, placeholder: str) -> bool:
    """Whether the word has the placeholder; doubled braces are literal ones."""
    return placeholder in word.replace("{{", "").replace("}}", "")


# --- Words for people ---


def _default_title(prompt: str, command: tuple[str, ...], action: str) -> str:
    """The first line that says something."""
    script = command[-1] if command[:-1] == _SHELL else " ".join(command)
    lines = (line.strip() for line in (prompt.strip() or script).splitlines())
    first = next(filter(None, lines), action)
    first = _HEADING.sub("", first, count=1) if _HEADING.match(first) else first
    return first if len(first) <= _DEFAULT_TITLE else first[: _DEFAULT_TITLE - 1] + "…"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    listed = one_line(", ".join(names), 200) or f"none; add one under `{what}s` in the configuration"
    return f"there is no {what} {_show(name)}{_meant(name, names)}; known: {listed}"


def _meant(word: str, known: Iterable[str]) -> str:
    near = near_miss(word, known)
    return f" (did you mean '{near}'?)" if near else ""


def _label(path: Path) -> str:
    """As one writes it: env.NAME, artifacts[2]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return one_line("".join(parts).removeprefix("."), 80)


def _show(value: object) -> str:
    return one_line(repr(value), 60)


def _short(text: str) -> str:
    """Enough to be refused by: nothing that long is a name or a duration."""
    return text if len(text) <= 70 else text[:70] + "…"  # noqa: PLR2004 - a name has 64 at most
