"""Environment variables: one value each, over all files."""

import pytest
from tests.config.instance import Instance

from fairlead.config.schema import Config


@pytest.mark.parametrize(
    ("name", "value", "path", "expected"),
    [
        ("SLOTS__MAX", "8", "slots.max", 8),
        ("slots__max", "8", "slots.max", 8),
        ("Slots__Max", "8", "slots.max", 8),
        ("SLOTS", "{max: 8}", "slots.max", 8),
        ("LIMITS__TIMEOUT", "45m", "limits.timeout", 2700.0),
        ("LIMITS__TIMEOUT", "90", "limits.timeout", 90.0),
        ("SPOOL__INOTIFY", "false", "spool.inotify", False),
        ("RETENTION__DAYS", "0.5", "retention.days", 0.5),
        ("OPERATORS", "[alice, bob]", "operators", ("alice", "bob")),
        ("DEFAULT_USER", "alice", "default_user", "alice"),
        ("DEFAULT_USER", "'007'", "default_user", "007"),
        ("LOG__LEVEL", "debug", "log.level", "debug"),
        ("LOG__MAX_BYTES", "4096", "log.max_bytes", 4096),
        ("LOG__KEEP", "1", "log.keep", 1),
        ("SLOTS__MAX", "", "slots.max", 4),
    ],
)
def test_a_variable_sets_one_value(name: str, value: str, path: str, expected: object, instance: Instance) -> None:
    """The value is read as YAML and has the schema's type; nothing means the default."""
    found: object = instance.config(**{f"FAIRLEAD__{name}": value})
    for part in path.split("."):
        found = getattr(found, part)
    assert found == expected
    assert type(found) is type(expected)


def test_names_of_people_keep_their_case(instance: Instance) -> None:
    """The schema's keys may be shouted; agents, users and variables are taken as they stand."""
    config = instance.config(
        FAIRLEAD__AGENTS__Mine__COMMAND="[mine]",
        FAIRLEAD__AGENTS__Mine__ENV__API_KEY="secret",
        FAIRLEAD__FAIR_SHARE__WEIGHTS__Alice="2",
    )
    assert config.agents["Mine"].command == ("mine",)
    assert config.agents["Mine"].env == {"API_KEY": "secret"}
    assert config.fair_share.weights == {"Alice": 2}


def test_the_narrower_variable_wins(instance: Instance) -> None:
    """A value of its own is laid over the section's."""
    config = instance.config(FAIRLEAD__SLOTS__MAX="8", FAIRLEAD__SLOTS="{max: 7}")
    assert config.slots.max == 8


def test_other_variables_mean_nothing(instance: Instance) -> None:
    """One underscore is no setting."""
    variables = {"FAIRLEAD_HOME": "/x", "FAIRLEAD_SLOTS": "8", "SLOTS__MAX": "8", "fairlead__slots__max": "8"}
    assert instance.config(**variables) == Config(agents=instance.config().agents)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SLOTS__MAX", "many", "slots.max: expected whole number, 1 or more; got 'many'"),
        ("SLOTS__MAX", "0", "slots.max: expected whole number, 1 or more; got 0"),
        ("SLOTS__MAX__MORE", "1", "slots.max: expected whole number, 1 or more; got a mapping"),
        ("SLOTS__MXA", "1", "slots.mxa: unknown key; did you mean 'max'?"),
        ("SLTS__MAX", "1", "slts: unknown key; did you mean 'slots'?"),
        ("SLOTS", "8", "slots: expected mapping with the keys max; got 8"),
        ("", "8", "unknown key"),
        ("SPOOL__INOTIFY", "perhaps", "spool.inotify: expected true or false; got 'perhaps'"),
        ("OPERATORS", "[a, b", "it is not valid YAML: did not find expected ',' or ']'"),
        ("DEFAULT_USER", "\udcff", "it is not UTF-8 text"),
        ("DEFAULT_USER", "a\x07", "the character U+0007 is not allowed"),
        ("DEFAULT_USER", "[" * 1000, "it is nested more than 16 levels deep"),
        (
            "AGENTS__mine__COMMAND",
            "[mine, {prompt}]",
            "agents.mine.command[1]: expected text; got a mapping; write it in quotes",
        ),
    ],
)
def test_errors_name_the_variable(name: str, value: str, problem: str, instance: Instance) -> None:
    """What is wrong is said with the variable and the key that it means."""
    (found,) = instance.problems(**{f"FAIRLEAD__{name}": value})
    assert found.startswith(f"FAIRLEAD__{name}: {problem}")
