"""From one command to a finished task, as administrator and user see it: for the whole host, and for one user alone."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.booted.host import FAIRLEAD, Host, boot
from tests.support.booted.site import SPOOL
from tests.support.patience import eventually

STORY = ["queued", "claimed", "started", "completed"]
TASK = json.dumps({"title": "first", "prompt": "id -un; cat /proc/self/cgroup; until [ -e ~/go ]; do sleep 0.05; done"})


@pytest.fixture
def host() -> Iterator[Host]:
    """A host of this test's own."""
    with closing(boot()) as host:
        yield host


def drop(host: Host, user: str, folder: str) -> None:
    """Drop the task as a user does."""
    host.run("sh", "-c", 'cat >"$1/.first" && mv "$1/.first" "$1/first.json"', "sh", folder, user=user, stdin=TASK)


def test_a_shared_host(host: Host) -> None:
    """One command installs it; a user drops a file; status, journal and socket tell what became of it."""
    host.fairlead("install", "--system", "--enable")
    host.useradd("alice", "fairlead")
    host.useradd("eve")
    host.systemctl("reload", "fairlead-porter.service")
    eventually(host.path(f"{SPOOL}/alice").is_dir, "alice gets no spool")
    drop(host, "alice", f"{SPOOL}/alice")

    def unit() -> str:
        return host.systemctl("list-units", "--plain", "--no-legend", "fairlead-run-*").split(" ")[0]

    task = eventually(unit, "no unit").removeprefix("fairlead-run-").removesuffix(".1.service")
    eventually(lambda: f"fairlead-run-{task}.1.service" in host.direct("systemd-cgls", "--no-pager"), "it is not seen")
    status = host.property_of("fairlead-daemon.service", "StatusText")
    eventually(lambda: "1 of 4 slots" in host.property_of("fairlead-daemon.service", "StatusText"), f"it says {status}")
    assert task in host.run(FAIRLEAD, "list", user="alice").stdout
    assert "first" in host.run(FAIRLEAD, "show", task, user="alice").stdout
    assert "first" not in host.run(FAIRLEAD, "show", task, user="eve").stdout
    assert host.run(FAIRLEAD, "cancel", task, user="eve", check=False).returncode == 5
    assert host.run(FAIRLEAD, "logs", task, user="eve", check=False).returncode == 5
    host.run("touch", "/home/alice/go", user="alice")
    host.run(FAIRLEAD, "wait", task, user="alice")
    assert host.run(FAIRLEAD, "logs", task, user="alice").stdout.startswith("alice\n")
    told = eventually(lambda: _story(host, task), "the journal does not tell its story")
    assert told == STORY
    assert f"fairlead-run-{task}" in host.direct("journalctl", "--no-pager", "--unit", f"fairlead-run-{task}.1.service")
    host.fairlead("uninstall", "--system")
    assert host.systemctl("list-units", "--all", "--plain", "--no-legend", "fairlead*").strip() == ""
    assert host.path("/var/lib/fairlead/archive").is_dir()


def _story(host: Host, task: str) -> list[str]:
    """What the journal tells of a task, once it tells of its end."""
    events = [str(entry["FAIRLEAD_EVENT"]) for entry in host.journal(f"FAIRLEAD_TASK={task}")]
    own = [event for event in events if event in STORY]
    return own if "completed" in own else []


def test_a_users_own_queue(host: Host) -> None:
    """Without root: services of his own manager, and agents in units of it."""
    host.useradd("alice")
    host.linger("alice")
    host.fairlead("install", "--user", "--enable", user="alice")
    spool = "/home/alice/.local/state/fairlead/spool"
    eventually(host.path(spool).is_dir, "there is no spool")
    drop(host, "alice", spool)
    running = eventually(
        lambda: host.systemctl("list-units", "--plain", "--no-legend", "fairlead-run-*", user="alice"), "no unit"
    )
    task = running.split(" ")[0].removeprefix("fairlead-run-").removesuffix(".1.service")
    host.run("touch", "/home/alice/go", user="alice")
    host.run(FAIRLEAD, "wait", task, user="alice")
    name, *cgroups = host.run(FAIRLEAD, "logs", task, user="alice").stdout.splitlines()
    assert name == "alice"
    assert cgroups[-1].endswith(f"/fairlead.slice/fairlead-run-{task}.1.service")
    host.fairlead("uninstall", "--user", user="alice")
    assert host.systemctl("list-units", "--all", "--plain", "--no-legend", "fairlead*", user="alice").strip() == ""
    assert host.path("/home/alice/.local/state/fairlead/archive").is_dir()
