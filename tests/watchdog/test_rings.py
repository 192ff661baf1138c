"""Many rings at once: none is missed, and what can wait waits for them."""

from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.base.bell import Listener
from fairlead.conductor.meta import read_meta
from fairlead.conductor.rundir import all_active, only_inhabitant
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.watchdog.watchdog import Watchdog

USERS = 16


def test_a_crowd_of_ends_is_recorded_at_once(home: Home) -> None:
    """More runs end at the same time than the kernel keeps rings for, and one pass records all of them."""
    home.configure(slots={"max": USERS})
    watchdog = home.watchdog()
    watchdog.run_once()
    listener = Listener(home.paths.bells, "watchdog")
    ids = home.submit_all([home.document(user=f"user{number}") for number in range(USERS)])
    home.dispatcher().run_once()
    runs = list(all_active(home.paths.conductor))
    assert len(runs) == USERS
    eventually(lambda: all(map(_is_over, runs)), "some runs do not end")
    words = listener.take()
    listener.close()
    watchdog.hear(words)
    _pass(watchdog)
    assert home.is_over(*ids), f"only {len(words)} rings came"


def test_the_archive_waits_while_runs_ring(home: Home) -> None:
    """An end is recorded at its ring; it is archived when nobody rings any more, or has waited long enough."""
    dispatcher, watchdog = home.dispatcher(), home.watchdog()
    watchdog.run_once()
    first, second = _end_by_ring(home, dispatcher, watchdog, "ann"), _end_by_ring(home, dispatcher, watchdog, "bob")
    assert [home.task(one).archived for one in (first, second)] == [False, False]
    watchdog.hear(set())
    _pass(watchdog)
    assert [home.task(one).archived for one in (first, second)] == [True, True]
    assert not watchdog.has_more
    third = _end_by_ring(home, dispatcher, watchdog, "ann")
    watchdog._archive_at = 0.0
    fourth = _end_by_ring(home, dispatcher, watchdog, "bob")
    assert [home.task(one).archived for one in (third, fourth)] == [True, True]


def _end_by_ring(home: Home, dispatcher: Dispatcher, watchdog: Watchdog, user: str) -> str:
    """Let a task run, and record its end by its ring; returns its id."""
    task = home.submit(user=user)
    dispatcher.run_once()
    eventually(lambda: home.meta(task).ended, "it does not end")
    watchdog.hear({f"ended {task}.1"})
    _pass(watchdog)
    assert home.is_over(task)
    return task


def _pass(watchdog: Watchdog) -> None:
    for step in watchdog.steps():
        step()


def _is_over(run_dir: str) -> bool:
    """Whether the end is written and the supervisor has gone, which rings as the last thing it does."""
    if not read_meta(run_dir).ended:
        return False
    with only_inhabitant(run_dir) as alone:
        return alone
