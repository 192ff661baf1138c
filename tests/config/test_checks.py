"""Checks: what the types cannot say."""

import pytest
from tests.config.instance import Instance

from fairlead.config.schema import PLACEHOLDERS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agents: {x: {stdin: prompt}}", "agents.x.command: this key is required and missing"),
        ("agents: {x: {}}", "agents.x.command: this key is required and missing"),
        ("projects: {x: {agent: claude}}", "projects.x.path: this key is required and missing"),
        ("projects: {x: {path: src/x}}", "projects.x.path: 'src/x' must be absolute, or start with ~"),
        ("projects: {x: {path: ''}}", "projects.x.path: '' must be absolute, or start with ~"),
        (
            "projects: {x: {path: /x, agent: clade}}",
            "projects.x.agent: there is no agent 'clade'; did you mean 'claude'?",
        ),
        ("default_agent: nobody", "default_agent: there is no agent 'nobody'"),
        ("default_agent: Shell", "default_agent: there is no agent 'Shell'; did you mean 'shell'?"),
    ],
)
def test_names_and_places_must_fit_together(text: str, problem: str, instance: Instance) -> None:
    """Missing keys, relative paths and unknown agents are told with their line."""
    assert instance.problems_of(text) == [f"config.yaml:1: {problem}"]


def test_an_agent_that_was_taken_out_is_unknown(instance: Instance) -> None:
    """Whoever removes the default agent has to name another one."""
    assert instance.problems_of("agents: {shell: null}") == ["default: default_agent: there is no agent 'shell'"]
    assert instance.problems_of("agents: {shell: null}\ndefault_agent: claude") == []


def test_an_agent_of_a_later_layer_is_known(instance: Instance) -> None:
    """The layers are checked together: what one names another may define."""
    instance.write("default_agent: mine\nprojects: {x: {path: ~/x, agent: mine}}")
    instance.write("agents: {mine: {stdin: prompt}}", "config.d/1.yaml")
    instance.write("agents: {mine: {command: [mine]}}", "config.d/2.yaml")
    assert instance.problems() == []


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_every_placeholder_may_be_used(name: str, instance: Instance) -> None:
    """Alone, in the middle of text, and beside literal braces."""
    assert instance.problems_of(f"agents: {{x: {{command: [x, '{{{name}}}', 'a={{{name}}},{{{{b}}}}']}}}}") == []


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ("{promt}", "unknown placeholder {promt}; did you mean 'prompt'?"),
        ("{zzz}", "unknown placeholder {zzz}; there are prompt, prompt_file,"),
        ("{}", "unknown placeholder {}; there are prompt,"),
        ("{0}", "unknown placeholder {0}; there are prompt,"),
        ("{prompt.__class__}", "unknown placeholder {prompt.__class__}; "),
        ("{prompt[0]}", "unknown placeholder {prompt[0]}; "),
        ("{prompt!r}", "the placeholder {prompt} takes no ':' or '!'; write {prompt} alone"),
        ("{prompt:>9}", "the placeholder {prompt} takes no ':' or '!'; write {prompt} alone"),
        ("{prompt", "'{prompt': expected '}' before end of string; a literal brace is written twice, as {{ or }}"),
        ("}", "'}': Single '}' encountered in format string; a literal brace is written twice, as {{ or }}"),
        ("{print $1}", "unknown placeholder {print $1}; "),
    ],
)
def test_a_wrong_placeholder_is_told(part: str, problem: str, instance: Instance) -> None:
    """What the template would do at run time is checked when it is written."""
    (found,) = instance.problems_of(f'agents: {{x: {{command: [x, "{part}"]}}}}')
    assert found.startswith(f"config.yaml:1: agents.x.command: {problem}")


def test_every_wrong_part_of_a_command_is_told(instance: Instance) -> None:
    """Two mistakes in one command are two problems."""
    assert len(instance.problems_of('agents: {x: {command: ["{a}", "{prompt}", "{b}"]}}')) == 2


def test_a_lease_has_room_for_four_heartbeats(instance: Instance) -> None:
    """One that ends as soon as a loaded host is late would end healthy runs, whichever of the two was set."""
    lease = "per_user_serialization.lock_timeout_seconds"
    assert instance.problems_of("per_user_serialization: {lock_timeout_seconds: 19.9}") == [
        f"config.yaml:1: {lease}: 19.9 seconds must be at least 4 times intervals.heartbeat, which is 5"
    ]
    assert instance.problems_of("intervals: {heartbeat: 16m}") == [
        f"default: {lease}: 3600 seconds must be at least 4 times intervals.heartbeat, which is 960"
    ]
    assert instance.problems_of("per_user_serialization: {lock_timeout_seconds: 20}") == []
    assert instance.problems_of("intervals: {heartbeat: 15m}") == []


def test_zero_is_no_limit_where_the_reference_says_so(instance: Instance) -> None:
    """Agents and projects may lift the time limit; the general one cannot be lifted."""
    instance.write("agents: {shell: {timeout: 0}}\nprojects: {x: {path: /x, timeout: 0s}}")
    assert instance.config().agents["shell"].timeout == 0.0
    assert instance.config().projects["x"].timeout == 0.0
