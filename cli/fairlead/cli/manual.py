"""Man pages, made from the commands' parsers and the settings' schema."""

import argparse
from collections.abc import Iterator

from fairlead.cli.arguments import Parser
from fairlead.cli.commands import COMMANDS
from fairlead.cli.main import EXIT_CODES
from fairlead.cli.reference import actions, parsers, value_of
from fairlead.config.reference import rows

_ABOUT = "A queue for hosts that several people share: one task per user at a time, fair share, nothing lost."


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    found = {"fairlead.1": _overview(), "fairlead.yaml.5": _settings()}
    for name in COMMANDS:
        for made in parsers(name):
            found[f"{made.prog.replace(' ', '-')}.1"] = _page(made)
    return found


def _page(made: Parser) -> str:
    """One command, or one of its ways."""
    name = made.prog.replace(" ", "-")
    summary = (made.description or "").partition(".")[0]
    parts = [*_head(name, 1, summary), ".SH SYNOPSIS", f".B {_text(made.prog)}", *_synopsis(made)]
    parts += [".SH DESCRIPTION", _text(made.description or "")]
    if taken := actions(made):
        parts += [".SH OPTIONS", *(line for action in taken for line in _option(action))]
    parts += [".SH EXAMPLES", ".nf", *map(_line, (made.epilog or "").splitlines()[1:]), ".fi"]
    parts += [".SH EXIT STATUS", *_exit_codes(), ".SH SEE ALSO", ".BR fairlead (1)"]
    return "\n".join(parts) + "\n"


def _overview() -> str:
    parts = [*_head("fairlead", 1, _ABOUT.rstrip(".")), ".SH SYNOPSIS", ".B fairlead", ".I COMMAND", "[options]"]
    parts += [".SH DESCRIPTION", _text(_ABOUT), ".SH COMMANDS"]
    for name, (_, summary) in COMMANDS.items():
        parts += [".TP", f".BR fairlead\\-{_text(name)} (1)", _text(summary)]
    parts += [".SH EXIT STATUS", *_exit_codes(), ".SH SEE ALSO", ".BR fairlead.yaml (5)"]
    return "\n".join(parts) + "\n"


def _settings() -> str:
    parts = [*_head("fairlead.yaml", 5, "Fairlead's settings"), ".SH DESCRIPTION"]
    parts.append(
        "All settings are optional; every key has a default. The file is /etc/fairlead/config.yaml for the system,"
        " and ~/.config/fairlead/config.yaml for one's own queue. Unknown keys are errors:"
        " \\(lqfairlead config check\\(rq says what is wrong and where."
    )
    parts.append(".SH KEYS")
    for key, kind, default, meaning in rows():
        parts += [".TP", f".B {_text(key)}", f"{_text(meaning)} {_text(f'({kind}; default: {default})')}"]
    return "\n".join([*parts, ".SH SEE ALSO", ".BR fairlead (1)"]) + "\n"


def _head(name: str, section: int, summary: str) -> list[str]:
    title = f'.TH "{_text(name.upper())}" {section} "" "Fairlead" "Fairlead"'
    return [title, ".SH NAME", f"{_text(name)} \\- {_text(summary)}"]


def _synopsis(made: Parser) -> Iterator[str]:
    for action in actions(made):
        shown = _text(
            " ".join(filter(None, (action.option_strings[0] if action.option_strings else "", _value(action))))
        )
        yield f"[{shown}]" if action.option_strings or action.nargs in ("?", "*") else shown


def _option(action: argparse.Action) -> Iterator[str]:
    names = [" ".join(filter(None, (name, _value(action)))) for name in action.option_strings]
    yield ".TP"
    yield f".B {_text(', '.join(names) or _value(action))}"
    yield _text(action.help or "")


def _value(action: argparse.Action) -> str:
    return "" if action.nargs == 0 else value_of(action)


def _exit_codes() -> Iterator[str]:
    for line in EXIT_CODES.splitlines()[1:]:
        if line.startswith("  "):
            code, _, meaning = line.strip().partition("  ")
            yield from (".TP", f".B {_text(code)}", _text(meaning))
        else:
            yield from (".PP", _text(line))


def _text(words: str) -> str:
    """Words as they are: nothing in them is roff's."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    return " ".join(escaped.split()).removeprefix(" ") if not escaped.startswith(".") else f"\\&{escaped}"


def _line(words: str) -> str:
    """A line that is shown as it stands."""
    return "\\&" + "\\ " * (len(words) - len(words.lstrip())) + _text(words)
