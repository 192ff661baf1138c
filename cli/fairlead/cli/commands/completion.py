"""fairlead completion."""

from fairlead.cli.arguments import parser
from fairlead.cli.commands import COMMANDS

_BASH = """_fairlead_ids() {{
    fairlead list --all --limit 200 2>/dev/null | awk 'NR > 1 {{print $1}}'
}}
_fairlead() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
        show|logs|wait|why|cancel|retry|requeue|change)
            COMPREPLY=($(compgen -W "$(_fairlead_ids)" -- "$word")) ;;
        config) COMPREPLY=($(compgen -W "check show" -- "$word")) ;;
        lock) COMPREPLY=($(compgen -W "hold release" -- "$word")) ;;
        completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")) ;;
        *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -F _fairlead fairlead
"""

_ZSH = """#compdef fairlead
_fairlead() {{
    local -a commands ids
    commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "$words[2]" in
        show|logs|wait|why|cancel|retry|requeue|change)
            ids=(${{(f)"$(fairlead list --all --limit 200 2>/dev/null | awk 'NR > 1 {{print $1}}')"}})
            compadd -a ids ;;
        config) compadd check show ;;
        lock) compadd hold release ;;
        completion) compadd bash zsh fish ;;
        *) _files ;;
    esac
}}
compdef _fairlead fairlead
"""

_FISH = """complete -c fairlead -n __fish_use_subcommand -f
{described}
complete -c fairlead -n '__fish_seen_subcommand_from show logs wait why cancel retry requeue change' \
-f -a "(fairlead list --all --limit 200 2>/dev/null | awk 'NR > 1 {{print \\$1}}')"
complete -c fairlead -n '__fish_seen_subcommand_from config' -f -a 'check show'
complete -c fairlead -n '__fish_seen_subcommand_from lock' -f -a 'hold release'
complete -c fairlead -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'
"""


def main(words: list[str]) -> int:
    """Print a completion script."""
    made = parser(
        "completion",
        "Completion of commands and ids for a shell.",
        [
            "fairlead completion bash > ~/.local/share/bash-completion/completions/fairlead",
            "fairlead completion fish > ~/.config/fish/completions/fairlead.fish",
        ],
        json=False,
    )
    made.add_argument("shell", choices=("bash", "zsh", "fish"))
    args = made.parse_args(words)
    print(_SCRIPTS[args.shell](), end="")
    return 0


def _bash() -> str:
    return _BASH.format(commands=" ".join(COMMANDS))


def _zsh() -> str:
    described = "\n".join(f"        '{name}:{summary}'" for name, (_, summary) in _safe())
    return _ZSH.format(described=described)


def _fish() -> str:
    lines = [f"complete -c fairlead -n __fish_use_subcommand -a {name} -d '{text}'" for name, (_, text) in _safe()]
    return _FISH.format(described="\n".join(lines))


def _safe() -> list[tuple[str, tuple[str, str]]]:
    """Summaries without what would end a quoted word or a description."""
    return [(name, (module, text.replace("'", "").replace(":", ","))) for name, (module, text) in COMMANDS.items()]


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
