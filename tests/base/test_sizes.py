"""Sizes as people write them."""

import pytest

from fairlead.base.errors import UsageError
from fairlead.base.sizes import parse_size, show_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (0, 0),
        (4096, 4096),
        ("4096", 4096),
        ("1k", 1024),
        ("512M", 512 << 20),
        ("1.5G", 3 << 29),
        ("2GiB", 2 << 30),
        (" 3m ", 3 << 20),
    ],
)
def test_sizes_are_powers_of_1024(text: str | int, count: int) -> None:
    """K, M, G and T in any case, with or without iB behind."""
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", -1, True, 1.5, "1X", "1 M", "1e3", "nan"])
def test_what_is_no_size_is_refused(text: float | str) -> None:
    """With a sentence that shows how to write one."""
    with pytest.raises(UsageError, match="512M"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (1 << 30, "1 GiB")]
)
def test_sizes_are_shown_in_their_largest_unit(count: int, text: str) -> None:
    """With one digit behind the point at most."""
    assert show_size(count) == text
