"""What the schema's types cannot say: names that must exist, paths, placeholders, limits that fight."""

from string import Formatter
from typing import Any

from fairlead.config.layers import Entries, entries_of
from fairlead.config.problems import DEFAULT, Path, Problem, did_you_mean, show_path, show_value
from fairlead.config.reading import Node
from fairlead.config.schema import PLACEHOLDERS, Agent, Config, Project, Section
from fairlead.config.shape import fields_of

#: So many heartbeats fit into a lease at least.
BEATS_PER_LEASE = 4


def check_whole(tree: Entries, problems: list[Problem]) -> None:
    """Check the layers together; adds to the problems."""
    agents, projects = entries_of(tree.get("agents")), entries_of(tree.get("projects"))
    already = {problem.key.partition("[")[0] for problem in problems}  # a wrong item is not a missing list
    for name, agent in agents.items():
        path = ("agents", name)
        problems += [problem for problem in _missing(agent, Agent, path) if problem.key not in already]
        problems += _bad_command(entries_of(agent).get("command"), (*path, "command"))
    for name, project in projects.items():
        path = ("projects", name)
        problems += [problem for problem in _missing(project, Project, path) if problem.key not in already]
        problems += _bad_place(entries_of(project).get("path"), (*path, "path"))
        problems += _unknown_agent(entries_of(project).get("agent"), agents, (*path, "agent"))
    problems += _unknown_agent(_effective(tree, ("default_agent",)), agents, ("default_agent",))
    problems += _short_lease(tree)


def _missing(node: Node, section: type[Section], path: Path) -> list[Problem]:
    return [
        Problem(node.origin, show_path((*path, name)), "this key is required and missing")
        for name, field in fields_of(section).items()
        if field.required and name not in entries_of(node)
    ]


def _unknown_agent(node: Node | None, agents: Entries, path: Path) -> list[Problem]:
    if node is None or node.value in agents:
        return []
    return [
        Problem(
            node.origin,
            show_path(path),
            f"there is no agent {node.value!r}" + did_you_mean(node.value, agents),
        )
    ]


def _bad_place(node: Node | None, path: Path) -> list[Problem]:
    if node is None or node.value.startswith(("/", "~")):
        return []
    return [Problem(node.origin, show_path(path), f"{show_value(node.value)} must be absolute, or start with ~")]


def _bad_command(node: Node | None, path: Path) -> list[Problem]:
    if node is None:
        return []
    found = [what for part in node.value if (what := _bad_template(part))]
    return [Problem(node.origin, show_path(path), what) for what in found]


def _bad_template(text: str) -> str | None:
    """What is wrong with a command's part, read as str.format will read it."""
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError as error:
        return f"{show_value(text)}: {error}; a literal brace is written twice, as {{{{ or }}}}"
    for _, name, spec, conversion in fields:
        if name not in PLACEHOLDERS:
            return f"unknown placeholder {{{name}}}" + (did_you_mean(str(name), PLACEHOLDERS) or _known())
        if spec or conversion:
            return f"the placeholder {{{name}}} takes no ':' or '!'; write {{{name}}} alone"
    return None


def _known() -> str:
    return f"; there are {', '.join(PLACEHOLDERS)}, and a literal brace is written twice"


def _short_lease(tree: Entries) -> list[Problem]:
    """A loaded host delays a heartbeat or two: a lease that has no room for that would end healthy runs."""
    lease_path, beat_path = ("per_user_serialization", "lock_timeout_seconds"), ("intervals", "heartbeat")
    lease, beat = _effective(tree, lease_path), _effective(tree, beat_path)
    if lease.value >= BEATS_PER_LEASE * beat.value:
        return []
    least = f"{BEATS_PER_LEASE} times {show_path(beat_path)}, which is {beat.value:g}"
    what = f"{lease.value:g} seconds must be at least {least}"
    return [Problem(lease.origin, show_path(lease_path), what)]


def _effective(tree: Entries, path: Path) -> Node:
    """What was set, or the schema's default."""
    default: Any = Config()
    node: Node | None = Node(tree, DEFAULT)
    for part in path:
        default = getattr(default, part)
        node = entries_of(node).get(part)
    return node or Node(default, DEFAULT)
