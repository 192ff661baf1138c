"""User text on its way to a terminal or a log: control characters become visible."""

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)} | {
    # Separators and direction marks that make a terminal lie.
    code: f"\\u{code:04x}"
    for code in (
        0x2028,
        0x2029,
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0xFEFF,
    )
}
_ONE_LINE = _VISIBLE | {0x09: "\\t", 0x0A: "\\n"}


def visible(text: str) -> str:
    """The text with control characters spelled out; tabs and line ends stay."""
    return _printable(text.translate(_VISIBLE))


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, control characters spelled out, cut at the limit."""
    safe = _printable(text.translate(_ONE_LINE))
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _printable(text: str) -> str:
    """Lone surrogates cannot be encoded: spell them out too."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
