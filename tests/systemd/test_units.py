"""Transient units in a booted systemd: what is proven is in inside/units.py, which is run there."""

import re

import pytest
from tests.support.booted.host import PYTHON, Host


@pytest.mark.timeout(300)
def test_units_are_what_is_asked_for_and_nobody_is_lost_sight_of(fresh_host: Host) -> None:
    """Also when answers are lost, supervisors killed, and the bus started anew: no agent twice, none taken for gone."""
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=100", "tests/systemd/inside/units.py")
    properties = ("WorkingDirectory=/opt/source",)
    env = {"FAIRLEAD_TEST_UNITS": "system", "PYTHONDONTWRITEBYTECODE": "1"}
    done = fresh_host.run(PYTHON, *words, env=env, properties=properties, check=False)
    # By its own word: whoever waits for it over the bus is cut off when that is started anew.
    last = done.stdout.rstrip().rpartition("\n")[2]
    assert re.fullmatch(r"\d+ passed in .*", last), done.stdout[-8000:] + done.stderr[-2000:]
