"""fairlead completion."""

from fairlead.cli.arguments import Parser, parser
from fairlead.cli.commands import COMMANDS
from fairlead.cli.reference import actions, parsers
from fairlead.queue.task import PRIORITIES

#: Commands whose arguments are ids, and those with words of their own.
_TAKE_IDS = ("show", "logs", "wait", "why", "cancel", "retry", "requeue", "change")
_WORDS = {"config": "check show", "lock": "hold release", "completion": "bash zsh fish"}
_IDS = 'fairlead list --all --limit 200 2>/dev/null | tail -n +2 | cut -d" " -f1'

_AGENTS = r"fairlead config show 2>/dev/null | sed -n 's/^agents\.\([^. ]*\)\..*/\1/p' | sort -u"
_PRIORITIES = " ".join(PRIORITIES)
#: What bash offers behind an option whose parser does not list its values.
_VALUES = {
    "submit --agent": f"$({_AGENTS})",
    "submit --priority": _PRIORITIES,
    "change --priority": _PRIORITIES,
}
_SCOPES = "all user: project:"

_BASH = """\
_fairlead() {
    local word="${COMP_WORDS[COMP_CWORD]}" options="" words=""
    if [ "$COMP_CWORD" -eq 1 ] || [ "$COMP_CWORD ${COMP_WORDS[1]}" = "2 help" ]; then
        COMPREPLY=($(compgen -W "@NAMES@" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}" in
@VALUES@
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]}" in
@OPTIONS@
    esac
    case "${COMP_WORDS[1]}" in
        @TAKE_IDS@) words="$(@IDS@)" ;;
    esac
    case "$COMP_CWORD ${COMP_WORDS[1]}" in
@WORDS@
    esac
    case "$word" in
        -*) words="$options" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
# Where there is nothing to offer, files are.
complete -o default -F _fairlead fairlead
"""

_ZSH = """\
#compdef fairlead
_fairlead() {
    local -a commands
    local options=""
    commands=(
@DESCRIBED@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "$words[2]" in
@OPTIONS@
    esac
    if [[ "$words[CURRENT]" == -* ]]; then
        compadd -- ${=options}
        return
    fi
    case "$words[2]" in
        @TAKE_IDS@) compadd -- ${(f)"$(@IDS@)"} ;;
@WORDS@
        *) _files ;;
    esac
}
compdef _fairlead fairlead
"""

_FISH = """\
@DESCRIBED@
@OPTIONS@
complete -c fairlead -n '__fish_seen_subcommand_from @TAKE_IDS@' -f -a '(@IDS@)'
@WORDS@
"""


def make_parser() -> Parser:
    """What it takes."""
    made = parser(
        "completion",
        "Completion of commands, options and ids for a shell.",
        [
            "mkdir -p ~/.local/share/bash-completion/completions",
            "fairlead completion bash > ~/.local/share/bash-completion/completions/fairlead",
            "mkdir -p ~/.zsh/completions",
            "fairlead completion zsh > ~/.zsh/completions/_fairlead",
            "mkdir -p ~/.config/fish/completions",
            "fairlead completion fish > ~/.config/fish/completions/fairlead.fish",
        ],
        json=False,
    )
    shells = tuple(_SCRIPTS)
    made.add_argument("shell", metavar="|".join(shells), choices=shells, help="whose script to print")
    return made


def main(words: list[str]) -> int:
    """Print a completion script."""
    args = make_parser().parse_args(words)
    print(script(args.shell), end="")
    return 0


def script(shell: str) -> str:
    """The completion for a shell."""
    return _SCRIPTS[shell]()


def _bash() -> str:
    options = [f'        {name}) options="{_options(name)}" ;;' for name in COMMANDS]
    first = _WORDS | {"pause": _SCOPES, "resume": _SCOPES}
    words = [f'        "2 {name}") words="{its}" ;;' for name, its in first.items()]
    values = [f'        "{option}") words="{its}" ;;' for option, its in (_listed_values() | _VALUES).items()]
    parts = {"OPTIONS": options, "WORDS": words, "VALUES": values}
    return _filled(_BASH, NAMES=" ".join(COMMANDS), TAKE_IDS="|".join(_TAKE_IDS), **parts)


def _listed_values() -> dict[str, str]:
    """The values of every option whose parser lists them, by command and option."""
    return {
        f"{name} {word}": " ".join(map(str, action.choices))
        for name in COMMANDS
        for made in parsers(name)
        for action in actions(made)
        if action.choices
        for word in action.option_strings
    }


def _zsh() -> str:
    described = [f"        '{name}:{_summary(name)}'" for name in COMMANDS]
    options = [f'        {name}) options="{_options(name)}" ;;' for name in COMMANDS]
    words = [f"        {name}) compadd -- {its} ;;" for name, its in _WORDS.items()]
    return _filled(_ZSH, DESCRIBED=described, TAKE_IDS="|".join(_TAKE_IDS), OPTIONS=options, WORDS=words)


def _fish() -> str:
    first = "complete -c fairlead -n __fish_use_subcommand -f -a"
    then = "complete -c fairlead -n '__fish_seen_subcommand_from"
    described = [f"{first} {name} -d '{_summary(name)}'" for name in COMMANDS]
    options = [f"{then} {name}' -l {word[2:]}" for name in COMMANDS for word in _options(name).split()]
    words = [f"{then} {name}' -f -a '{its}'" for name, its in _WORDS.items()]
    return _filled(_FISH, DESCRIBED=described, TAKE_IDS=" ".join(_TAKE_IDS), OPTIONS=options, WORDS=words)


def _filled(script: str, **parts: str | list[str]) -> str:
    """The script with its parts in place: words where they stand, lists as lines."""
    for name, part in parts.items():
        script = script.replace(f"@{name}@", part if isinstance(part, str) else "\n".join(part))
    return script.replace("@IDS@", _IDS)


def _options(name: str) -> str:
    """The long options of a command and its ways."""
    found = [word for made in parsers(name) for action in actions(made) for word in action.option_strings]
    return " ".join(dict.fromkeys(word for word in [*found, "--help"] if word.startswith("--")))


def _summary(name: str) -> str:
    """What it does, without what would end a quoted word or a description."""
    return COMMANDS[name][1].replace("'", "").replace(":", ",")


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
