"""Problems: all at once, each with its place, and a hint where there is one."""

import pytest
from tests.config.instance import Instance

from fairlead.base.errors import UsageError
from fairlead.config.problems import ConfigError, Origin, Problem, did_you_mean, show_path, show_value


def test_all_problems_are_told_at_once(instance: Instance) -> None:
    """One run shows everything that is wrong in files and environment, each with its line and key."""
    instance.write("slots:\n  max: none\n\nlimts:\n  grace: 5\nlimits:\n  grace: soon\n")
    instance.write("default_agent: clade\n", "config.d/more.yaml")
    assert instance.problems(FAIRLEAD__LOG__LEVEL="loud") == [
        "config.yaml:2: slots.max: expected whole number, 1 or more; got 'none'",
        "config.yaml:4: limts: unknown key; did you mean 'limits'?",
        "config.yaml:7: limits.grace: expected duration (seconds, or like 90s, 15m, 1h30m, 2d), 0 or more; got 'soon'",
        "FAIRLEAD__LOG__LEVEL: log.level: expected one of debug, info, warning, error; got 'loud'",
        "config.d/more.yaml:1: default_agent: there is no agent 'clade'; did you mean 'claude'?",
    ]


def test_the_error_lists_its_problems(instance: Instance) -> None:
    """Several problems have a heading, one speaks for itself."""
    instance.write("a: 1\nb: 2")
    with pytest.raises(ConfigError) as caught:
        instance.settings()
    assert str(caught.value).startswith("The configuration has 2 problems:\n  ")
    assert isinstance(caught.value, UsageError)
    instance.write("a: 1")
    with pytest.raises(ConfigError, match=r"^/.*/config\.yaml:1: a: unknown key$"):
        instance.settings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slots: 4", "slots: expected mapping with the keys max; got 4"),
        ("slots: [4]", "slots: expected mapping with the keys max; got a list"),
        ("slots: {max: 1.5}", "slots.max: expected whole number, 1 or more; got 1.5"),
        ("slots: {max: true}", "slots.max: expected whole number, 1 or more; got true"),
        ("slots: {max: '4'}", "slots.max: expected whole number, 1 or more; got '4'"),
        ("slots: {max: 0x10}", "slots.max: expected whole number, 1 or more; got '0x10'"),
        ("slots: {max: 010}", "slots.max: expected whole number, 1 or more; got '010'"),
        ("slots: {max: -1}", "slots.max: expected whole number, 1 or more; got -1"),
        ("limits: {output_bytes: 5}", "limits.output_bytes: expected whole number, 4096 or more; got 5"),
        ("limits: {timeout: 0}", "limits.timeout: expected duration"),
        ("limits: {timeout: 1:30}", "limits.timeout: expected duration"),
        ("limits: {grace: -1}", "limits.grace: expected duration"),
        ("limits: {grace: .inf}", "limits.grace: expected duration"),
        ("limits: {grace: true}", "limits.grace: expected duration"),
        ("limits: {grace: [1]}", "limits.grace: expected duration"),
        ("spool: {inotify: no}", "spool.inotify: expected true or false; got 'no'"),
        ("spool: {inotify: 1}", "spool.inotify: expected true or false; got 1"),
        ("retention: {days: .nan}", "retention.days: expected number, more than 0, at most 1000000; got '.nan'"),
        ("fair_share: {weights: {alice: 0}}", "fair_share.weights.alice: expected number, more than 0, at most"),
        ("fair_share: {weights: [alice]}", "fair_share.weights: expected mapping of name"),
        ("fair_share: {weights: {a/b: 1}}", "fair_share.weights.a/b: 'a/b' will not do here; expected name (1 to 64"),
        ("agents: {a b: {command: [x]}}", "agents.a b: 'a b' will not do here; expected name (1 to 64"),
        ('agents: {"a\\n": {command: [x]}}', "agents.a\\n: 'a\\n' will not do here"),
        ("default_user: 7", "not starting with . or -); got 7; write it in quotes"),
        ("default_user: true", "got true; write it in quotes"),
        ("default_user: [alice]", "got a list"),
        ("operators: alice", "operators: expected list of user, or group:NAME"),
        ("operators: [alice, 7]", "operators[1]: expected user, or group:NAME"),
        ("operators: [alice, null]", "got null"),
        ("environment: [PATH, 1A]", "environment[1]: expected variable name (letters, digits, _); got '1A'"),
        ("agents: {x: {command: []}}", "agents.x.command: expected list of text, at least one; got a list"),
        ("agents: {x: {command: sh}}", "agents.x.command: expected list of text, at least one; got 'sh'"),
        ("agents: {x: {command: [sleep, 5]}}", "agents.x.command[1]: expected text; got 5; write it in quotes"),
        (
            "agents: {x: {command: [x, {prompt}]}}",
            "agents.x.command[1]: expected text; got a mapping; write it in quotes",
        ),
        ("agents: {x: {command: [x, [y]]}}", "agents.x.command[1]: expected text; got a list"),
        ('agents: {x: {command: ["a\\0b"]}}', "agents.x.command[0]: expected text; got 'a\\x00b'"),
        ("agents: {x: {command: [x], env: {A: 1}}}", "agents.x.env.A: expected text; got 1; write it in quotes"),
        (
            "agents: {x: {command: [x], env: {A B: x}}}",
            "agents.x.env.A B: 'A B' will not do here; expected variable name",
        ),
        (
            "agents: {x: {command: [x], stop_signal: KILL}}",
            "agents.x.stop_signal: expected one of TERM, INT, HUP, QUIT; got 'KILL'",
        ),
        (
            "agents: {x: 5}",
            "agents.x: expected mapping with the keys command, stdin, env, timeout, stop_signal, sandbox; got 5",
        ),
        ("agents: {x.y: {comand: [x], command: [y]}}", "agents.\"x.y\".comand: unknown key; did you mean 'command'?"),
        ("Slots: {max: 4}", "Slots: unknown key; did you mean 'slots'?"),
        ("completely_different: 1", "completely_different: unknown key"),
    ],
)
def test_a_wrong_value_is_refused(text: str, problem: str, instance: Instance) -> None:
    """The message says the line, the key, what was expected and what was found."""
    (found,) = instance.problems_of(text)
    assert found.startswith("config.yaml:1: ")
    assert problem in found


def test_each_item_of_a_list_has_its_line(instance: Instance) -> None:
    """Where a list is written over several lines, the item's own line is told."""
    name = "expected user, or group:NAME"
    assert instance.problems_of("operators:\n  - alice\n  - -bob\n  - 7\n") == [
        f"config.yaml:3: operators[1]: {name}; got '-bob'",
        f"config.yaml:4: operators[2]: {name}; got 7; write it in quotes",
    ]


def test_a_wrong_value_is_not_missed_as_well(instance: Instance) -> None:
    """What was refused is not reported as missing too."""
    assert instance.problems_of("agents: {x: {command: 5}}\nprojects: {y: {path: 5}}") == [
        "config.yaml:1: agents.x.command: expected list of text, at least one; got 5",
        "config.yaml:2: projects.y.path: expected text; got 5; write it in quotes",
    ]


def test_a_broken_file_makes_no_false_alarms(instance: Instance) -> None:
    """What a file that cannot be read defines is not reported as missing elsewhere."""
    instance.write("agents: {mine: {command: [mine]}", "config.d/agents.yaml")
    (found,) = instance.problems_of("default_agent: mine")
    assert found.startswith("config.d/agents.yaml:2: it is not valid YAML: did not find expected ',' or '}'")


def test_poison_in_the_file_does_not_reach_the_terminal(instance: Instance) -> None:
    """Keys, values and YAML's own messages are shown with control characters spelled out."""
    found = "".join(instance.problems_of('"\\e[2J": 1\ndefault_user: "\\e[2J"\nslots: {"\\u202e": 1}'))
    assert "\\x1b[2J" in found
    assert "\x1b" not in found
    assert "\u202e" not in found


def test_a_long_value_is_cut(instance: Instance) -> None:
    """A wrong value of any length leaves a message that can be read."""
    (found,) = instance.problems_of(f"slots: {{max: {'x' * 10_000}}}")
    assert len(found) < 200


def test_the_near_miss_is_suggested() -> None:
    """Case does not matter, and nonsense has no suggestion."""
    assert did_you_mean("Clade", ["claude", "codex"]) == "; did you mean 'claude'?"
    assert did_you_mean("PROMPT", ["prompt"]) == "; did you mean 'prompt'?"
    assert did_you_mean("zzz", ["claude", "codex"]) == ""


def test_paths_values_and_origins_are_shown_as_people_write_them() -> None:
    """Dots in names are quoted, items are counted, and nothing is shown as Python writes it."""
    assert show_path(("agents", "my.agent", "command", "[0]")) == 'agents."my.agent".command[0]'
    shown = [show_value(value) for value in (None, True, False, 5, "x", {"a": 1}, [1])]
    assert shown == ["null", "true", "false", "5", "'x'", "a mapping", "a list"]
    assert str(Problem(Origin("file", 3), "slots.max", "is wrong")) == "file:3: slots.max: is wrong"
    assert str(Problem(Origin("VARIABLE"), "", "is wrong")) == "VARIABLE: is wrong"
