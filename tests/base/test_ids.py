"""Ids and names: unique, sortable, and safe as a part of a path."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.programs import run

from fairlead.base.errors import UsageError
from fairlead.base.ids import DIGITS, bucket, check_id, check_name, is_id, is_name, month, new_id

MOMENTS = st.integers(min_value=0, max_value=250_000_000_000_000)


def test_an_id_says_when_it_was_made() -> None:
    """UTC date, time to the millisecond, and ten digits that people do not misread."""
    assert re.fullmatch(rf"20260921-141320007-[{DIGITS}]{{10}}", new_id(1_790_000_000_007))
    assert not set("ilou") & set(DIGITS)
    assert len(set(DIGITS)) == 32


@given(MOMENTS, MOMENTS)
def test_ids_sort_by_time(one: int, other: int) -> None:
    """Of two ids the earlier one comes first, in the order of plain text."""
    if one != other:
        assert (new_id(one) < new_id(other)) is (one < other)


@given(MOMENTS)
def test_every_new_id_is_an_id(moment: int) -> None:
    """What is made passes its own check, and fits into its month and hour."""
    made = new_id(moment)
    assert check_id(made) == made
    at = time.gmtime(moment // 1000)
    assert month(made) == time.strftime("%Y-%m", at)
    assert bucket(made) == time.strftime("%Y%m%d-%H", at)


def test_every_digit_is_used_everywhere() -> None:
    """All fifty random bits are random: each place of the tail shows every digit."""
    tails = [new_id(0)[-10:] for _ in range(2000)]
    assert all({tail[place] for tail in tails} == set(DIGITS) for place in range(10))


def test_processes_do_not_make_the_same_id() -> None:
    """32 processes make a thousand ids each, all of the same millisecond, and no two are equal."""
    made = run("base", "make_ids", 32, 1000).split()
    assert len(made) == 32_000
    assert len(set(made)) == 32_000


@pytest.mark.parametrize("text", ["", "A", "a/b", "..", "a.b", "a\n", "a b", "é", "a" * 65, "a\0"])
def test_what_is_no_id_is_refused(text: str) -> None:
    """Nothing that could lead a path elsewhere is an id."""
    assert not is_id(text)
    with pytest.raises(UsageError, match="is not a task id"):
        check_id(text)


@pytest.mark.parametrize("text", ["alice", "a.b", "A_b-c", "_x", "0", "a..b", "x" * 64])
def test_names_are_accepted(text: str) -> None:
    """Letters, digits, and a few marks between them."""
    assert is_name(text)
    assert check_name(text) == text


@pytest.mark.parametrize("text", ["", ".", "..", ".a", "-a", "a/b", "a\n", "a b", "é", "x" * 65, "a\0"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """Neither hidden files, nor options, nor ways out of a directory; the message says what it should have been."""
    assert not is_name(text)
    with pytest.raises(UsageError, match="cannot be a project"):
        check_name(text, "project")
