"""Every command explains itself, and the pages name no other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import Run, shown
from tests.support.instance import Home

from fairlead.cli.commands import COMMANDS
from fairlead.cli.main import EXIT_CODES, load
from fairlead.cli.reference import parsers, reference

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
#: What a program needs is in JSON; these have nothing to read, or hand over to somebody else.
WITHOUT_JSON = {"up", "api", "porter", "daemon", "watchdog", "completion", "lock"}


def test_the_commands_are_those_that_were_promised() -> None:
    """The table holds every command, and no other."""
    promised = """up daemon watchdog submit status list show logs wait why cancel retry requeue change pause resume
        drain locks lock capacity events doctor prune rebuild config simulate dispatch completion api porter install
        uninstall"""
    assert sorted(COMMANDS) == sorted(promised.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself(run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """--help exits with 0, on lines that fit, and ends with an example of the command."""
    monkeypatch.setenv("COLUMNS", "80")
    assert callable(load(name))
    said = run(name, "--help")
    assert said.err == ""
    assert said.out.startswith(f"usage: fairlead {name}")
    assert f"  fairlead {name}" in said.out.partition("\nexamples:\n")[2]
    explanation, _, _ = said.out.partition("\nexamples:\n")
    assert max(map(len, explanation.splitlines())) <= 80
    assert run("help", name).out == said.out


def test_help_in_a_pipe_is_as_wide_as_a_page(home: Home) -> None:
    """Where there is no terminal, and nobody says how wide, lines have at most 80 characters."""
    home.environ.pop("COLUMNS", None)
    explanation = home.cli("rebuild", "--help").stdout.partition("\nexamples:\n")[0]
    assert 60 < max(map(len, explanation.splitlines())) <= 80


def test_help_is_as_wide_as_the_terminal(home: Home) -> None:
    """A wide terminal has long lines, a narrow one short ones."""
    for columns in (60, 150):
        explanation = shown(home, "rebuild", "--help", columns=columns).partition("\nexamples:\n")[0]
        assert columns - 20 < max(map(len, explanation.splitlines())) < columns


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_JSON))
def test_a_command_can_speak_to_programs(name: str) -> None:
    """Every command that tells something has --json."""
    [made] = parsers(name)
    assert made.parse_known_args(["--json", *_least(name)])[0].json is True


def _least(name: str) -> list[str]:
    """The arguments that a command cannot do without."""
    ids = {"show", "logs", "wait", "why", "cancel", "retry", "requeue", "change"}
    others = {"simulate": ["ann:1:1m"], "dispatch": ["--once"], "config": ["show"]}
    return ["x"] if name in ids else others.get(name, [])


def test_the_two_ways_of_lock_explain_themselves(run: Run) -> None:
    """`lock hold --help` and `lock release --help` have examples of their own."""
    for way in ("hold", "release"):
        assert f"examples:\n  fairlead lock {way} alice" in run("lock", way, "--help").out


def test_the_overview_names_every_command_and_exit_code(run: Run) -> None:
    """`fairlead`, `fairlead help` and `fairlead --help` print the same table and the exit codes."""
    overview = run().out
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", overview, re.MULTILINE)
    assert EXIT_CODES in overview
    assert overview == run("--help").out == run("-h").out == run("help").out


def test_the_version_is_told(run: Run) -> None:
    """--version, -V and version print the name and a number."""
    assert re.fullmatch(r"fairlead \d+\.\d+\.\d+\n", run("--version").out)
    assert run("-V").out == run("version").out == run("--version").out


def test_the_reference_is_printed_from_the_parsers() -> None:
    """docs/commands.md is what `python -m fairlead.cli.reference` prints."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    printed = subprocess.run(
        [sys.executable, "-m", "fairlead.cli.reference"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert page == printed, "print it again: python -m fairlead.cli.reference > docs/commands.md"


def test_every_argument_has_its_meaning() -> None:
    """No row of the reference is without a sentence."""
    assert not re.findall(r"^\| .* \|  \|$", reference(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_commands_that_exist(page: Path) -> None:
    """Whatever README and docs tell people to type is a command with those options."""
    for words in re.findall(r"[`$] ?fairlead ([a-z][^`\n|]*)", page.read_text(encoding="utf-8")):
        name, *rest = words.split()
        assert name in COMMANDS, words
        known = {option for made in parsers(name) for action in made._actions for option in action.option_strings}
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in own if re.fullmatch("--[a-z-]+", word)} <= known, words
