"""A spool with very many files: its clerk keeps a bounded list, oldest first, and lets everybody else go first."""

import os
from pathlib import Path

import pytest

from fairlead.conductor.errands import Delivery, Settle, Take
from fairlead.porter import clerk as module
from fairlead.porter.clerk import Clerk


def dropped(spool: Path, count: int) -> list[str]:
    """So many files, the last named the oldest."""
    names = [f"{number:03}.json" for number in reversed(range(count))]
    for age, name in enumerate(names):
        (spool / name).write_text("{}")
        os.utime(spool / name, (age + 1, age + 1))
    return names


def taken(clerk: Clerk, most: int) -> Delivery:
    """What the clerk hands over, settled at once."""
    delivery = clerk.take(Take(most, 1 << 20, 1 << 20, 0.0))
    clerk.settle(Settle([file.id for file in delivery.files], {}))
    return delivery


def test_more_than_one_look_finds_all_of_them_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many were dropped, a list is no longer than it may be, and the oldest come first all the same."""
    monkeypatch.setattr(module, "MOST_NAMES", 5)
    names, clerk, seen = dropped(tmp_path, 12), Clerk(str(tmp_path)), []
    more = True
    while more:
        delivery = taken(clerk, 2)
        assert len(clerk._waiting) < 5
        seen += [file.name for file in delivery.files]
        more = delivery.more
    assert seen == names
    assert os.listdir(tmp_path) == [".intake"]


def test_what_is_still_written_is_no_reason_to_look_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list full of files that somebody has open ends the visit; they are looked at later."""
    monkeypatch.setattr(module, "MOST_NAMES", 2)
    names, clerk = dropped(tmp_path, 3), Clerk(str(tmp_path))
    with (tmp_path / names[0]).open("a"), (tmp_path / names[1]).open("a"):
        delivery = taken(clerk, 9)
        assert (delivery.files, delivery.more, delivery.settling) == ([], False, True)
    assert len(taken(clerk, 9).files) == 2


@pytest.mark.parametrize(("count", "nice"), [(2, 0), (3, 10)])
def test_a_clerk_with_much_to_do_steps_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, nice: int
) -> None:
    """From so many files on he is nicer to the others."""
    monkeypatch.setattr(module, "MANY", 3)
    dropped(tmp_path, count)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    pid = os.fork()
    if pid == 0:
        taken(Clerk(str(tmp_path)), 1)
        os._exit(os.getpriority(os.PRIO_PROCESS, 0))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == max(before, nice)
