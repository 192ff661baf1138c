"""What the ended runs of a user may hold: the oldest beyond that go, and nobody else's."""

import os

from tests.support.instance import Home

from fairlead.conductor import rundir
from fairlead.watchdog.quota import RunQuota, size_of


def ended(home: Home, user: str) -> str:
    """The directory of a run that is over, with a log of a hundred kilobytes."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    task = home.submit("head -c 100000 /dev/urandom", user=user)
    home.play(lambda: home.task(task).archived, dispatcher, watchdog)
    return rundir.finished_dir(home.paths.conductor, "default", task, 1)


def test_the_oldest_beyond_the_quota_go(home: Home) -> None:
    """As many as have to, of whoever is over his quota alone, and the log names limit, use and owner."""
    bobs = [ended(home, "bob") for _ in range(2)]
    anns = [ended(home, "ann") for _ in range(4)]
    home.configure(limits={"run_bytes": 300_000})
    quota = RunQuota(home.open())
    for _ in range(3):
        quota.look()
    assert [os.path.exists(one) for one in anns] == [False, False, True, True]
    assert all(map(os.path.exists, bobs))
    [told] = home.log("over_quota", user="ann")
    assert told["error"].startswith("the ended runs of ann hold ")
    assert "limits.run_bytes is 293 KiB" in told["error"]
    assert sum(map(size_of, anns)) <= 300_000


def test_a_round_takes_as_many_looks_as_it_has_portions(home: Home) -> None:
    """However many runs there are, one look is short."""
    runs = [ended(home, "ann") for _ in range(3)]
    home.configure(limits={"run_bytes": 150_000})
    quota = RunQuota(home.open())
    for _ in range(4):
        quota.look(portion=1)
    assert all(map(os.path.exists, runs))
    for _ in range(3):
        quota.look(portion=1)
    assert [os.path.exists(one) for one in runs] == [False, False, True]


def test_the_watchdog_minds_quotas(home: Home) -> None:
    """With its looks around; a run whose task is not archived, or not known, is left alone."""
    run = ended(home, "ann")
    home.configure(limits={"run_bytes": 1})
    stray = f"{os.path.dirname(run)}/20200101-000000000-aaaaaaaaaa.1"
    os.mkdir(stray)
    watchdog = home.watchdog()
    for _ in range(3):
        watchdog.run_once()
    assert not os.path.exists(run)
    assert os.path.exists(stray)
    assert size_of(run) == 0
