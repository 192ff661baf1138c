"""completion: the scripts, in the shells themselves."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.running import Run
from tests.support.instance import FAIRLEAD
from tests.support.packages import need

from fairlead.cli.commands import COMMANDS

SHELLS = ("bash", "zsh", "fish")


class Shells:
    """Shells in which `fairlead` is this one, and its completion is loaded."""

    def __init__(self, run: Run) -> None:
        self.home = run.home
        self._run = run
        self._bin = run.home.path / "bin"
        self._bin.mkdir()
        script = self._bin / "fairlead"
        script.write_text(f'#!/bin/sh\nexec {" ".join(FAIRLEAD)} "$@"\n', encoding="utf-8")
        script.chmod(0o700)

    def script(self, name: str) -> Path:
        """A file with the completion for a shell."""
        path = self.home.path / f"completion.{name}"
        path.write_text(self._run("completion", name).out, encoding="utf-8")
        return path

    def __call__(self, name: str, *words: str) -> list[str]:
        """The lines that a shell prints."""
        need(name)
        path = f"{self._bin}:{os.environ['PATH']}"
        env = self.home.environ | {"PATH": path, "HOME": str(self.home.work), "TERM": "dumb"}
        done = subprocess.run(
            [name, *words], cwd=self.home.work, env=env, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def bash(self, *lines: str) -> list[list[str]]:
        """What bash offers for the last word of each line."""
        script = f"source {self.script('bash')}\n"
        for line in lines:
            script += f"COMP_WORDS=(fairlead {line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
            script += 'COMPREPLY=(); _fairlead; echo "${COMPREPLY[@]}"\n'
        return [line.split() for line in self("bash", "-c", script)]


@pytest.fixture
def shells(run: Run) -> Shells:
    return Shells(run)


@pytest.mark.parametrize("name", SHELLS)
def test_the_scripts_are_good_for_their_shell(shells: Shells, name: str) -> None:
    """Each shell can read its own, and no part of it was left to be filled in."""
    script = shells.script(name)
    shells(name, "-n", str(script))
    assert not re.findall("@[A-Z_]+@", script.read_text(encoding="utf-8"))


def test_an_unknown_shell_is_refused(run: Run) -> None:
    """Those that are known are named."""
    assert "bash" in run.refusal("completion", "tcsh", code=2)
    assert "required: bash|zsh|fish" in run.refusal("completion", code=2)


# ---------------------------------------------------------------------- bash


def test_bash_loads_it_as_people_do(shells: Shells) -> None:
    """`source <(fairlead completion bash)`; where it has nothing to offer, bash's own files are offered."""
    shown = shells("bash", "-c", "source <(fairlead completion bash); complete -p fairlead")
    assert shown == ["complete -o default -F _fairlead fairlead"]


def test_bash_completes_commands_options_and_words(shells: Shells) -> None:
    """Commands first, then a command's options, or its words; files are left to bash."""
    assert shells.bash(
        "''", "re", "list --", "submit --pr", "lock release --f", "config ''", "lock h", "submit ''"
    ) == [
        list(COMMANDS),
        ["retry", "requeue", "resume", "rebuild"],
        ["--json", "--all", "--status", "--user", "--project", "--limit", "--help"],
        ["--prompt", "--project", "--priority"],
        ["--force"],
        ["check", "show"],
        ["hold"],
        [],
    ]


def test_bash_completes_values(shells: Shells) -> None:
    """What may stand behind an option, which scopes can be paused, and whose help there is; a way is named once."""
    shells.home.configure(agents={"mine": {"command": ["true"]}})
    offered = shells.bash(
        *("list --status f", "submit --format ''", "submit --priority ''", "submit --agent m", "submit --agent s"),
        *("pause ''", "help stat", "lock release ''", "config check ''"),
    )
    assert offered == [
        ["failed"],
        ["yaml", "json", "md"],
        ["critical", "high", "medium", "low"],
        ["mine"],
        ["shell"],
        ["all", "user:", "project:"],
        ["status"],
        [],
        [],
    ]


def test_bash_completes_ids(shells: Shells) -> None:
    """Those of all tasks, finished ones too; none where there is no instance."""
    assert shells.bash("show ''") == [[]]
    task_id = shells.home.submit()
    shells.home.operations().cancel(task_id, by="ann")
    assert shells.bash(f"retry {task_id[:12]}", "retry x") == [[task_id], []]


# ---------------------------------------------------------------------- fish and zsh


def test_fish_completes(shells: Shells) -> None:
    """Commands with their summaries, options, ids and words."""
    task_id = shells.home.submit()
    lines = ("fairlead re", "fairlead show ", "fairlead dispatch --u", "fairlead config ")
    asked = "; echo ---; ".join(f"complete -C '{line}'" for line in lines)
    said = "\n".join(shells("fish", "-c", f"source {shells.script('fish')}; {asked}"))
    offered = [[line.partition("\t")[0] for line in part.split("\n") if line] for part in said.split("---\n")]
    assert offered == [["rebuild", "requeue", "resume", "retry"], [task_id], ["--until-empty"], ["check", "show"]]


def test_zsh_completes(shells: Shells) -> None:
    """Commands, options, ids and words: what the function adds is what zsh would offer."""
    task_id = shells.home.submit()
    # zsh completes only at a prompt: here its three helpers print what they are given.
    script = f"""compdef() {{ : }}; _files() {{ print FILES }}
        _describe() {{ print ${{(P)2%%:*}} }}
        compadd() {{ [[ $1 == -- ]] && shift; print -- $@ }}
        offer() {{ words=(fairlead "$@"); CURRENT=$#words; _fairlead }}
        source {shells.script("zsh")}
        offer ''; offer dispatch --; offer show ''; offer config ''; offer submit ''"""
    names, options, ids, words, files = shells("zsh", "-f", "-c", script)
    assert names.split() == list(COMMANDS)
    assert options == "--json --once --until-empty --help"
    assert (ids, words, files) == (task_id, "check show", "FILES")
