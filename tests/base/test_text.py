"""Text: what comes from a user never acts on a terminal."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.base.text import near_miss, one_line, visible

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()))
#: By the standard: control, format, half a surrogate pair, line and paragraph separator.
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def acts_on_a_terminal(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in OBEYED]


@given(ANYTHING)
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    """Whatever the text holds, only tabs and line ends are left, and it can be encoded."""
    assert set(acts_on_a_terminal(visible(text))) <= {"\t", "\n"}
    assert acts_on_a_terminal(one_line(text)) == []
    (visible(text) + one_line(text)).encode()


def test_every_character_there_is() -> None:
    """Of all characters those that act are spelled out, and all others stay as they are."""
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if acts_on_a_terminal(char):
            assert one_line(char).startswith("\\")
            assert one_line(char).isascii()
        else:
            assert visible(char) == one_line(char) == char


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),  # clears the screen
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),  # renames the window
        ("\x9b31m", "\\x9b31m"),  # the same as ESC [
        ("a\rb", "a\\rb"),  # overwrites the line
        ("a\x7f\x08b", "a\\x7f\\x08b"),
        ("\u202eevil", "\\u202eevil"),  # turns the direction
        ("\u061c", "\\u061c"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),  # a byte of a file name that is not UTF-8
        ("naïve 船\u00a0🚢", "naïve 船\u00a0🚢"),
        ("C:\\x1b", "C:\\x1b"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    """Each character that acts appears as its escape; letters of all languages stay."""
    assert visible(text) == shown
    assert one_line(text) == shown


def test_lines_stay_or_are_joined() -> None:
    """A text keeps its lines and tabs; where one line is needed they are spelled out."""
    assert visible("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == "a\\n\\tb"


@given(ANYTHING, st.integers(min_value=1, max_value=300))
def test_one_line_keeps_its_limit(text: str, limit: int) -> None:
    """A long text is cut, and the cut is seen."""
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert shown == one_line(text, sys.maxsize) or shown.endswith("…")


@pytest.mark.parametrize(("word", "meant"), [("Clade", "Claude"), ("CODEX", "codex"), ("zzz", ""), ("", "")])
def test_the_name_that_was_meant(word: str, meant: str) -> None:
    """The nearest known one, as it is written, whatever case it was asked for in."""
    assert near_miss(word, iter(["Claude", "codex"])) == meant
