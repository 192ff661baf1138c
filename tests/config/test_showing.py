"""Showing: every effective value with its origin, and what a reload changed."""

import msgspec
from tests.config.instance import Instance

from fairlead.config.showing import Row, changed_keys, describe


def test_every_value_is_shown_with_who_set_it(instance: Instance) -> None:
    """File and line, variable, or default."""
    path = instance.write("slots:\n  max: 5\noperators: [alice]\nfair_share: {weights: {bob.b: 2}}\n")
    rows = {row.key: row for row in describe(instance.settings(FAIRLEAD__LOG__LEVEL="debug"))}
    assert rows["slots.max"] == Row("slots.max", 5, f"{path}:2")
    assert rows["operators"] == Row("operators", ("alice",), f"{path}:3")
    assert rows['fair_share.weights."bob.b"'] == Row('fair_share.weights."bob.b"', 2.0, f"{path}:4")
    assert rows["log.level"] == Row("log.level", "debug", "FAIRLEAD__LOG__LEVEL")
    assert rows["limits.grace"] == Row("limits.grace", 10.0, "default")
    assert rows["agents.shell.command"].origin == "default"
    assert rows["projects"] == Row("projects", {}, "default")


def test_a_value_that_was_taken_back_is_a_default(instance: Instance) -> None:
    """Null leaves no trace of the layers before."""
    instance.write("slots: {max: 5}")
    rows = {row.key: row for row in describe(instance.settings(FAIRLEAD__SLOTS__MAX="null"))}
    assert rows["slots.max"] == Row("slots.max", 4, "default")


def test_the_rows_are_the_whole_configuration(instance: Instance) -> None:
    """In the schema's order, nothing left out: JSON of the rows is JSON of the settings."""
    settings = instance.settings()
    keys = [row.key for row in describe(settings)]
    assert keys[:3] == ["slots.max", "per_user_serialization.enabled", "per_user_serialization.lock_timeout_seconds"]
    assert keys[-1] == "log.keep"
    assert len(keys) == len(set(keys))
    assert {key.partition(".")[0] for key in keys} == set(msgspec.to_builtins(settings.config))


def test_a_reload_tells_what_changed(instance: Instance) -> None:
    """Values that differ, names that came and went; where a value is written does not matter."""
    instance.write("slots: {max: 5}\nagents: {old: {command: [old]}}\nlimits: {grace: 7}")
    before = instance.settings()
    instance.write("limits: {grace: 7}", "config.d/moved.yaml")
    instance.write("slots: {max: 6}\nfair_share: {weights: {alice: 2}}")
    after = instance.settings()
    changed = ["slots.max", "fair_share.weights.alice", "agents.old.command", "agents.old.stdin"]
    assert changed_keys(before, after)[:4] == changed
    assert all(key.startswith("agents.old.") for key in changed_keys(before, after)[4:])
    assert set(changed_keys(after, before)) == set(changed_keys(before, after))
    assert changed_keys(after, after) == []
