"""Layers: who wins, what merges, and how a setting is taken back."""

import os
from pathlib import Path

import pytest
from tests.config.instance import Instance

from fairlead.config.loading import SHIPPED, Settings, load
from fairlead.config.paths import Paths, find_paths
from fairlead.config.reference import PRESETS
from fairlead.config.schema import Config

SHELL = ("/bin/sh", "{prompt_file}")


def test_without_any_file_everything_has_its_default(instance: Instance) -> None:
    """Nothing has to be configured: the schema's defaults hold, and the shipped agents are there."""
    settings = instance.settings()
    assert settings.files == ()
    config = settings.config
    assert config.agents["shell"].command == SHELL
    assert set(config.agents) == {"shell", "claude", "codex", "aider", "gemini", "opencode"}
    assert config == Config(agents=config.agents)


def test_later_layers_win(instance: Instance) -> None:
    """Built in, config.yaml, config.d by name, environment: each is laid over the ones before."""
    assert instance.config().slots.max == 4
    instance.write("slots: {max: 5}")
    assert instance.config().slots.max == 5
    instance.write("slots: {max: 6}", "config.d/10-first.yaml")
    assert instance.config().slots.max == 6
    instance.write("slots: {max: 7}", "config.d/20-second.yml")
    assert instance.config().slots.max == 7
    instance.write("slots: {max: 8}", "config.d/15-between.yaml")
    assert instance.config().slots.max == 7
    assert instance.config(FAIRLEAD__SLOTS__MAX="9").slots.max == 9


def test_the_files_are_told_in_their_order(instance: Instance) -> None:
    """Names decide; hidden files, backups and other endings are left alone."""
    names = ("config.yaml", "config.d/a.yaml", "config.d/b.yml")
    for name in names:
        instance.write("slots: {max: 5}", name)
    for name in ("config.d/.hidden.yaml", "config.d/a.yaml~", "config.d/a.yaml.bak", "config.d/README"):
        instance.write("this: {is: [nonsense", name)
    assert instance.settings().files == tuple(str(instance.home / name) for name in names)


def test_mappings_merge_and_lists_are_replaced(instance: Instance) -> None:
    """A file that adds one agent, or one key of an agent, leaves the others as they are."""
    instance.write(
        """
        agents:
          claude: {timeout: 2h}
          mine: {command: [mine], env: {A: "1", B: "2"}}
        operators: [alice, bob]
        """
    )
    instance.write("agents: {mine: {env: {B: '3'}}}\noperators: [carol]", "config.d/more.yaml")
    config = instance.config()
    assert config.agents["claude"].timeout == 7200
    assert config.agents["claude"].stdin == "prompt"
    assert config.agents["mine"].env == {"A": "1", "B": "3"}
    assert config.operators == ("carol",)


def test_null_takes_a_key_back_to_its_default(instance: Instance) -> None:
    """A later layer can undo an earlier one: keys, whole sections, and parts of shipped agents."""
    instance.write(
        """
        slots: {max: 9}
        limits: {grace: 1, timeout: 5}
        default_user: alice
        operators: [alice]
        agents: {claude: {command: [other], stdin: none, timeout: 5}}
        """
    )
    instance.write(
        """
        slots: {max: null}
        limits:
        default_user: ~
        operators: null
        agents: {claude: {command: null, stdin: null, timeout: null}}
        """,
        "config.d/undo.yaml",
    )
    assert instance.config() == Config(agents=instance.config().agents)
    assert instance.config().agents == load(Paths("/nonexistent"), {}).config.agents


def test_null_takes_a_name_out(instance: Instance) -> None:
    """Shipped agents, projects, weights and variables can be removed."""
    instance.write(
        """
        agents: {codex: null, mine: {command: [mine], env: {A: "1", B: "2"}}}
        projects: {website: {path: /srv/website}}
        fair_share: {weights: {alice: 2, bob: 3}}
        """
    )
    instance.write(
        """
        agents: {mine: {env: {A: null}}}
        projects: {website: null}
        fair_share: {weights: {bob: null}}
        """,
        "config.d/undo.yaml",
    )
    config = instance.config()
    assert "codex" not in config.agents
    assert config.agents["mine"].env == {"B": "2"}
    assert config.projects == {}
    assert config.fair_share.weights == {"alice": 2}


def test_all_agents_can_be_taken_back(instance: Instance) -> None:
    """A null for the whole mapping returns to what is built in."""
    instance.write("agents: {claude: null, mine: {command: [mine]}}")
    instance.write("agents: null", "config.d/undo.yaml")
    assert set(instance.config().agents) == {"shell", "claude", "codex", "aider", "gemini", "opencode"}


def test_taking_out_what_is_not_there_is_fine(instance: Instance) -> None:
    """A null for a name that nobody set changes nothing."""
    instance.write("agents: {nobody: null}\nprojects: {nothing: null}\nslots: {max: null}")
    assert instance.config() == load(Paths("/nonexistent"), {}).config


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "---\n", "null", "\ufeffslots: {max: 4}", "slots:\r\n  max: 4\r\n"]
)
def test_empty_and_foreign_files_are_fine(text: str, instance: Instance) -> None:
    """A file of comments, one with a byte order mark, one from another system: none is an error."""
    instance.write(text)
    assert instance.config().slots.max == 4


@pytest.mark.parametrize("name", PRESETS)
def test_presets_load(name: str, instance: Instance) -> None:
    """Each preset can be copied to config.d as it is, and says nothing but the serialization."""
    with open(os.path.join(SHIPPED, "presets", f"{name}.yaml"), encoding="utf-8") as file:
        instance.write(file.read(), "config.d/preset.yaml")
    settings = instance.settings()
    assert {path[0] for path, origin in settings.origins.items() if origin.source != "default"} == {
        "per_user_serialization"
    }
    assert settings.config.per_user_serialization.enabled is (name != "debugging")


def test_every_preset_is_listed() -> None:
    """The reference shows all presets that are shipped."""
    assert {f"{name}.yaml" for name in PRESETS} == set(os.listdir(os.path.join(SHIPPED, "presets")))


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    """FAIRLEAD_CONFIG is read instead of the home's file, with the config.d beside it."""
    home, other = Instance(tmp_path / "home"), Instance(tmp_path / "other")
    for one in (home, other):
        one.home.mkdir()
    home.write("slots: {max: 5}")
    other.write("slots: {max: 6}", "mine.yaml")
    other.write("default_user: alice", "config.d/more.yaml")
    settings = load_from(FAIRLEAD_HOME=str(home.home), FAIRLEAD_CONFIG=str(other.home / "mine.yaml"))
    assert settings.config.slots.max == 6
    assert settings.config.default_user == "alice"


def load_from(**environ: str) -> Settings:
    return load(find_paths(environ), environ)
