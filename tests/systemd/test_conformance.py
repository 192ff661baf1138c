"""Agents in units are held to the page that agents as children are held to: the same tests, in a booted systemd."""

import pytest
from tests.support.booted.host import PYTHON, Host

#: What a supervisor owes its agent, wherever that runs.
SUITE = ("test_supervisor.py", "test_supervisor_output.py", "test_supervisor_trees.py", "test_supervisor_trouble.py")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SUITE)
def test_agents_in_units_behave_as_children_do(booted: Host, name: str) -> None:
    """Every test of supervisors holds for agents that systemd starts."""
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n2", "--timeout=100", f"tests/conductor/{name}")
    properties = ("WorkingDirectory=/opt/source",)
    env = {"FAIRLEAD_TEST_UNITS": "system", "PYTHONDONTWRITEBYTECODE": "1"}
    done = booted.run(PYTHON, *words, env=env, properties=properties, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
