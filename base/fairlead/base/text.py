"""User text on its way to a terminal or a log: whatever a terminal would obey instead of show becomes visible."""

import re
import unicodedata
from collections.abc import Iterable

#: Control and format characters, direction marks among them, half surrogates, line and paragraph separators.
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class _Visible(dict[int, str]):
    """A table for str.translate that works out each character once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        unsafe = unicodedata.category(char) in _UNSAFE
        self[code] = shown = char.encode("unicode_escape").decode() if unsafe else char
        return shown


class _Escaped(dict[int, str]):
    """The same with JSON's escapes, which know nothing beyond 16 bits."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        unsafe = char != "\n" and unicodedata.category(char) in _UNSAFE
        units = char.encode("utf-16-be", "surrogatepass").hex() if unsafe else ""
        self[code] = shown = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)) or char
        return shown


#: libyaml compares every such line with all before it: a megabyte of them takes many seconds.
_TAG_DIRECTIVE = re.compile("(?:^|[\r\n\x85\u2028\u2029])%TAG")
_LINES = _Visible({ord("\t"): "\t", ord("\n"): "\n"})
_ONE_LINE = _Visible()
_JSON = _Escaped()


def near_miss(word: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, in whatever case; nothing if none is near."""
    import difflib  # noqa: PLC0415 - only a mistake should pay for it

    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), folded, n=1)
    return folded[near[0]] if near else ""


def visible(text: str) -> str:
    """The text with control characters spelled out; tabs and line ends stay."""
    return text.translate(_LINES)


def escaped(document: str) -> str:
    """A JSON document, with what is in its texts that a terminal would obey escaped: it says the same."""
    return document.translate(_JSON)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, control characters spelled out, cut at the limit."""
    safe = text.translate(_ONE_LINE)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def line_of_tag_directive(text: str) -> int | None:
    """The line of the first %TAG in a YAML text, to be refused before any parser sees it; None if there is none."""
    tag = _TAG_DIRECTIVE.search(text)
    return text.count("\n", 0, tag.end()) + 1 if tag else None
