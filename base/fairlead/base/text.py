"""User text on its way to a terminal or a log: whatever a terminal would obey instead of show becomes visible."""

import unicodedata

#: Control and format characters, direction marks among them, half surrogates, line and paragraph separators.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class _Visible(dict[int, str]):
    """A table for str.translate that works out each character once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        unsafe = unicodedata.category(char) in _UNSAFE
        self[code] = shown = char.encode("unicode_escape").decode() if unsafe else char
        return shown


_LINES = _Visible({ord("\t"): "\t", ord("\n"): "\n"})
_ONE_LINE = _Visible()


def visible(text: str) -> str:
    """The text with control characters spelled out; tabs and line ends stay."""
    return text.translate(_LINES)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, control characters spelled out, cut at the limit."""
    safe = text.translate(_ONE_LINE)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
