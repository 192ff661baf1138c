"""Renders docs/configuration.md from the schema: `python -m fairlead.config.reference`."""

import os
import sys
from collections.abc import Iterator

import msgspec

from fairlead.config.loading import SHIPPED
from fairlead.config.problems import Path, show_path
from fairlead.config.reading import read_text
from fairlead.config.schema import PLACEHOLDERS, Agent, Config, Project, Section
from fairlead.config.shape import Field, briefly, fields_of

_NO_DEFAULT = ("required", "none")
PRESETS = ("development", "production", "debugging")

_INTRO = """\
# Configuration

Fairlead runs without any configuration. Everything below is optional; every key has a default.

```yaml
# config.yaml
slots:
  max: 8
default_agent: claude
projects:
  website:
    path: ~/src/website
    agent: codex
```

`fairlead config check` says what is wrong and where, all problems at once. `fairlead config show` prints every
effective value and who set it. [examples/config/config.yaml](../examples/config/config.yaml) has every key with
its default, ready to be copied.

## Where settings come from

Later wins:

1. what is built in (the defaults below, and the ready [agents](#agents)),
2. `config.yaml`: the file that `FAIRLEAD_CONFIG` names; else `config.yaml` in `FAIRLEAD_HOME`; else
   `fairlead/config.yaml` in `XDG_CONFIG_HOME`, which is `~/.config` unless set. It may be missing, unless
   `FAIRLEAD_CONFIG` names it,
3. the files in `config.d/` beside that file, in the order of their names,
4. [environment variables](#environment-variables) like `FAIRLEAD__SLOTS__MAX`.

Mappings merge key by key: a file that adds one agent leaves the others as they are. Lists are replaced as a whole.
`null` (or nothing after the colon) takes a setting back: a key of the tables below returns to its default, a name in
`agents`, `projects`, weights or `env` is taken out.

The files are YAML: one mapping each, UTF-8, at most 256 KiB, without aliases, tags and repeated keys. Unknown keys
are errors. A duration is a number of seconds or a text like `90s`, `15m`, `1h30m`, `2d`.
"""

_AGENTS = """\
## Agents

An agent is a named command template. No shell is involved: each item of `command` becomes one argument, after its
placeholders have been filled in. An agent runs in the project's directory.
"""

_AGENTS_MORE = """\
A literal brace is written twice: `awk '{{print $1}}'`.

`stdin: prompt` gives the agent the prompt on standard input; `stdin: none` gives it nothing to read. Prefer
`stdin: prompt` or `{prompt_file}` to `{prompt}` where the agent allows it: an argument cannot be longer than 128 KiB,
and a prompt that begins with `-` could be taken for an option.

An agent's environment is not the daemon's: it has the variables that `environment` lists, then the agent's `env`,
then the project's, then the task's. To hand an API key to an agent, add its name to `environment`, or its value to
the agent's `env` in a file that only you can read.

These are built in; change one by naming only what differs, take one out with `null`:
"""

_PROJECTS = """\
## Projects

A project is a tree that agents work in. Its name may be anything that a task's `project` says.
"""

_OVERRIDES = """\
## Environment variables

`FAIRLEAD__` followed by the key path, with two underscores between its parts, sets one value. The schema's keys may
be written in any case; names that you chose (agents, projects, users) are taken as they stand. The value is read as
YAML.

```sh
FAIRLEAD__SLOTS__MAX=8 fairlead up
FAIRLEAD__LIMITS__TIMEOUT=45m
FAIRLEAD__OPERATORS='[alice, bob]'
FAIRLEAD__AGENTS__claude__TIMEOUT=2h
```

`FAIRLEAD_HOME` and `FAIRLEAD_CONFIG` (one underscore) say where an instance lives; they are no settings.

## config.d

Files in `config.d/` whose names end in `.yaml` or `.yml` and do not start with a dot are read in the order of their
names, each over the ones before: `10-agents.yaml`, `50-projects.yaml`, `90-local.yaml`. This suits packages and
configuration management, which can then own a file each.

## Reload

`SIGHUP` (`systemctl reload`) reads everything again and logs which keys changed. When anything is wrong, the
problems are logged and the old settings stay in force; nothing stops.

| what | from when on |
|---|---|
| slots, fair share, operators, defaults, agents, projects, limits | the next task that is accepted or started |
| the time limit, environment and heartbeat of a run | the next run; a run keeps what it was started with |
| `log`, `spool.inotify` | the next start of the daemon and the watchdog |
| environment variables | the next start: a running process keeps its own |

Fewer slots than running tasks end no run: the next ones wait.
"""

_PRESETS = """\
## Presets

Three files in `config/fairlead/config/shipped/presets/` are ready to be copied to `config.d/`:
"""


def reference() -> str:
    """The whole page."""
    return (
        "\n".join(
            [
                _INTRO,
                *_sections(),
                _AGENTS,
                *_table(Agent, ("agents", "NAME")),
                *_placeholders(),
                _AGENTS_MORE,
                *_file("default.yaml"),
                _PROJECTS,
                *_table(Project, ("projects", "NAME")),
                _OVERRIDES,
                _PRESETS,
                *(line for name in PRESETS for line in (f"`{name}.yaml`:\n", *_file("presets", f"{name}.yaml"))),
            ]
        ).rstrip()
        + "\n"
    )


def _sections() -> Iterator[str]:
    yield from ("## General\n", *_table(Config, ()))
    for name, field in fields_of(Config).items():
        if section := field.shape.section:
            yield f"## {name}\n\n{section.__doc__}\n"
            yield from _table(section, (name,))


def _table(section: type[Section], path: Path) -> Iterator[str]:
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for key, kind, default, meaning in _rows_of(section, path):
        shown = default if default in _NO_DEFAULT else f"`{default}`"
        yield f"| `{key}` | {kind} | {shown} | {meaning} |"
    yield ""


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Every key with its type, default and meaning, for other pages than this."""
    yield from _rows_of(Config, ())
    for name, field in fields_of(Config).items():
        if section := field.shape.section:
            yield from _rows_of(section, (name,))
    yield from _rows_of(Agent, ("agents", "NAME"))
    yield from _rows_of(Project, ("projects", "NAME"))


def _rows_of(section: type[Section], path: Path) -> Iterator[tuple[str, str, str, str]]:
    """A row for each key; of the settings as a whole, sections have tables of their own."""
    for name, field in fields_of(section).items():
        if field.shape.section and path:
            yield from _rows_of(field.shape.section, (*path, name))
        elif not field.shape.section:
            yield show_path((*path, name)), briefly(field.shape), _default(field), field.shape.description


def _default(field: Field) -> str:
    if field.required:
        return _NO_DEFAULT[0]
    if field.default in (None, {}, ()):
        return _NO_DEFAULT[1]
    return msgspec.json.encode(field.default).decode()


def _placeholders() -> Iterator[str]:
    yield "| placeholder | stands for |\n|---|---|"
    yield from (f"| `{{{name}}}` | {meaning} |" for name, meaning in PLACEHOLDERS.items())
    yield ""


def _file(*names: str) -> Iterator[str]:
    yield f"```yaml\n{read_text(os.path.join(SHIPPED, *names))}```\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
