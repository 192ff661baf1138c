"""Services under a real systemd: started anew when they are stuck, reloaded, seen; agents go on."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.booted.host import FAIRLEAD, Host, boot
from tests.support.patience import eventually

USER = "alice"
SERVICES = ("fairlead-daemon.service", "fairlead-watchdog.service")
STATE = f"/home/{USER}/.local/state/fairlead"
SETTINGS = f"/home/{USER}/.config/fairlead/config.yaml"
#: The manager's patience with a service here, in seconds.
PATIENCE = 3
_QUICK = "slots:\n  max: {slots}\nintervals:\n  heartbeat: 0.2\n"


class Queue:
    """A queue of a user's own, with services that his manager runs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        host.useradd(USER)
        host.linger(USER)
        host.fairlead("install", user=USER)
        self.configure(4)
        for service in SERVICES:
            # Agents go on however often the daemon is started anew, wherever their supervisors live.
            extra = f"[Service]\nWatchdogSec={PATIENCE}s\nKillMode=process\n"
            self.write(f"/home/{USER}/.config/systemd/user/{service}.d/quick.conf", extra)
        self.systemctl("daemon-reload")
        self.systemctl("start", "fairlead.target")
        for service in SERVICES:
            eventually(lambda service=service: self.is_active(service), f"{service} does not come up")  # type: ignore[misc]

    def configure(self, slots: int) -> None:
        self.write(SETTINGS, _QUICK.format(slots=slots))

    def write(self, path: str, text: str) -> None:
        self.host.run("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, user=USER, stdin=text)

    def systemctl(self, *words: object, check: bool = True) -> str:
        return self.host.systemctl(*words, user=USER, check=check)

    def is_active(self, service: str) -> bool:
        return self.host.is_active(service, user=USER)

    def pid(self, service: str) -> int:
        """The main process, inside."""
        return self.host.main_pid(service, user=USER)

    def status(self, service: str) -> str:
        return self.host.property_of(service, "StatusText", user=USER)

    def submit(self, script: str) -> str:
        done = self.host.run(FAIRLEAD, "submit", "--json", "--prompt", script, user=USER)
        return str(json.loads(done.stdout)[0]["id"])

    def task(self, task_id: str) -> dict[str, object]:
        data: dict[str, object] = json.loads(self.host.run(FAIRLEAD, "show", task_id, "--json", user=USER).stdout)
        return data

    def is_at_work(self, task_id: str) -> bool:
        return self.task(task_id)["status"] == "running"

    def signal(self, pid: int, number: int) -> None:
        self.host.direct("kill", f"-{number}", pid)


@pytest.fixture(scope="module")
def queue() -> Iterator[Queue]:
    with closing(boot()) as host:
        yield Queue(host)


def go(queue: Queue, task_id: str) -> None:
    """Let a waiting agent end well, and see that it was never disturbed."""
    queue.write(f"/home/{USER}/go", "")
    eventually(lambda: queue.task(task_id)["status"] == "completed", f"{task_id} does not end")
    assert len(queue.task(task_id)["attempts"]) == 1  # type: ignore[arg-type]
    queue.host.direct("rm", "-f", f"/home/{USER}/go")


LONG = f"until [ -e /home/{USER}/go ]; do sleep 0.05; done"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_is_stuck_is_started_anew(service: str, queue: Queue) -> None:
    """Within twice the manager's patience; the agents never notice."""
    task_id = queue.submit(LONG)
    eventually(lambda: queue.is_at_work(task_id), "it does not start")
    before = queue.pid(service)
    queue.signal(before, signal.SIGSTOP)
    stopped = time.monotonic()
    eventually(lambda: queue.pid(service) not in (0, before) and queue.is_active(service), "it stays stuck")
    works_since = int(queue.host.property_of(service, "ActiveEnterTimestampMonotonic", user=USER)) / 1e6
    assert works_since - stopped < 2 * PATIENCE
    assert queue.is_at_work(task_id)
    go(queue, task_id)


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_is_started_anew(service: str, queue: Queue) -> None:
    """It knows its runs again."""
    task_id = queue.submit(LONG)
    eventually(lambda: queue.is_at_work(task_id), "it does not start")
    before = queue.pid(service)
    queue.signal(before, signal.SIGKILL)
    eventually(lambda: queue.pid(service) not in (0, before) and queue.is_active(service), "it stays dead")
    go(queue, task_id)


def test_an_idle_service_is_left_alone(queue: Queue) -> None:
    """It tells of its life though nothing happens for longer than the manager waits."""
    pids = [queue.pid(service) for service in SERVICES]
    deadline = time.monotonic() + 2 * PATIENCE
    eventually(lambda: time.monotonic() > deadline, "time goes by")
    assert [queue.pid(service) for service in SERVICES] == pids


def test_the_status_shows_depth_and_slots(queue: Queue) -> None:
    """Whoever asks systemd sees how the queue stands."""
    running, waiting = queue.submit(LONG), queue.submit("true")
    eventually(lambda: queue.status(SERVICES[0]) == "1 of 4 slots used, 1 waiting", "the status does not show it")
    assert "1 of 4 slots used, 1 waiting" in queue.systemctl("status", SERVICES[0])
    go(queue, running)
    eventually(lambda: queue.task(waiting)["status"] == "completed", "it does not end")


def test_a_reload_reads_the_settings(queue: Queue) -> None:
    """Without another process."""
    pid = queue.pid(SERVICES[0])
    queue.configure(9)
    queue.systemctl("reload", SERVICES[0])
    eventually(lambda: queue.status(SERVICES[0]).startswith("0 of 9 slots"), "it is not reloaded")
    queue.configure(4)
    queue.systemctl("reload", SERVICES[0])
    eventually(lambda: queue.status(SERVICES[0]).startswith("0 of 4 slots"), "it is not reloaded")
    assert queue.pid(SERVICES[0]) == pid


def test_wrong_settings_change_nothing_and_are_said(queue: Queue) -> None:
    """The old ones stay in force; status and journal say what is wrong."""
    queue.write(SETTINGS, "slots:\n  max: many\n")
    queue.systemctl("reload", SERVICES[0])
    words = "the settings are wrong, older ones are in force; 0 of 4 slots used, 0 waiting"
    eventually(lambda: queue.status(SERVICES[0]) == words, "the status does not say so")
    eventually(
        lambda: any(
            "slots.max" in str(entry["MESSAGE"]) for entry in queue.host.journal("FAIRLEAD_EVENT=settings_refused")
        ),
        "the journal does not say so",
    )
    queue.configure(4)
    queue.systemctl("reload", SERVICES[0])
    eventually(lambda: queue.status(SERVICES[0]).startswith("0 of 4 slots"), "it is not reloaded")


def test_what_is_refused_is_not_tried_again_and_again(fresh_host: Host) -> None:
    """Settings that are wrong from the start stop the service, with a word about it."""
    fresh_host.fairlead("install")
    fresh_host.path("/etc/fairlead/config.yaml").write_text("slots: 3\n")
    fresh_host.systemctl("start", "fairlead-watchdog.service", check=False)
    assert fresh_host.property_of("fairlead-watchdog.service", "ActiveState") == "failed"
    assert fresh_host.property_of("fairlead-watchdog.service", "NRestarts") == "0"
    assert any("slots" in str(entry["MESSAGE"]) for entry in fresh_host.journal("-u", "fairlead-watchdog.service"))


def test_nothing_is_uninstalled_under_running_agents(fresh_host: Host) -> None:
    """Unless they are to be ended: then none of them is left."""
    queue = Queue(fresh_host)
    task_id = queue.submit("exec sleep 1000")
    eventually(lambda: queue.is_at_work(task_id), "it does not start")
    refused = fresh_host.fairlead("uninstall", user=USER, check=False)
    assert refused.returncode == 5
    assert "1 agent runs" in refused.stderr
    assert "fairlead drain" in refused.stderr
    assert queue.is_at_work(task_id)
    fresh_host.fairlead("uninstall", "--force", user=USER)
    assert fresh_host.run("pgrep", "-u", USER, "-x", "sleep", check=False).stdout == ""
    assert not queue.is_at_work(task_id)
    assert fresh_host.run("pgrep", "-u", USER, "-f", "fairlead", check=False).stdout == ""
