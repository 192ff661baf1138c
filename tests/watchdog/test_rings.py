"""Rings that the kernel turns away because too many came at once."""

from tests.support.instance import Home
from tests.support.patience import eventually

from fairlead.base.bell import Listener
from fairlead.conductor.meta import read_meta
from fairlead.conductor.rundir import all_active, only_inhabitant

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
    for step in watchdog.steps():
        step()
    assert home.is_over(*ids), f"only {len(words)} rings came"


def _is_over(run_dir: str) -> bool:
    """Whether the end is written and the supervisor has gone, which rings as the last thing it does."""
    if not read_meta(run_dir).ended:
        return False
    with only_inhabitant(run_dir) as alone:
        return alone
