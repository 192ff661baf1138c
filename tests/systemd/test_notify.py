"""What services tell the manager that started them, as it arrives at a real socket."""

import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.instance import NO_POLLS, Home, home
from tests.support.patience import PATIENCE, eventually, stays

from fairlead.base.logs import open_log
from fairlead.daemon import process
from fairlead.queue.states import Status
from fairlead.systemd.notify import Notifier

__all__ = ["home"]


class Ear:
    """A manager's socket, and what was said to it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE)
        self.address = address
        self.heard: list[str] = []

    def next(self) -> str:
        self.heard.append(self._socket.recv(65536).decode())
        return self.heard[-1]

    def until(self, words: str) -> list[str]:
        """Listen until this is said; returns all that was said from now on."""
        before = len(self.heard)
        while words not in self.next():
            pass
        return self.heard[before:]

    def hears_nothing(self) -> bool:
        self._socket.setblocking(False)
        try:
            self.heard.append(self._socket.recv(65536).decode())
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(PATIENCE)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with closing(Ear(str(tmp_path / "notify"))) as ear:
        yield ear


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_each_word_is_one_datagram(kind: str, tmp_path: Path) -> None:
    """Both kinds of sockets that systemd knows are spoken to."""
    address = str(tmp_path / "notify") if kind == "path" else f"@fairlead-test-{os.getpid()}"
    with closing(Ear(address)) as ear:
        notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
        notifier.starting("waits", 2.5)
        notifier.ready()
        notifier.status("3 of 4")
        notifier.alive()
        notifier.stopping()
        said = [ear.next() for _ in range(5)]
    assert said == ["EXTEND_TIMEOUT_USEC=2500000\nSTATUS=waits", "READY=1", "STATUS=3 of 4", "WATCHDOG=1", "STOPPING=1"]
    assert notifier.patience == 3.0


def test_a_reload_says_when_it_began(ear: Ear) -> None:
    """By the clock that systemd compares it with."""
    before = time.monotonic_ns() // 1000
    Notifier({"NOTIFY_SOCKET": ear.address}).reloading()
    first, _, second = ear.next().partition("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_a_status_cannot_say_anything_else(ear: Ear) -> None:
    """Line ends in it would begin a word of their own."""
    Notifier({"NOTIFY_SOCKET": ear.address}).status("fine\nMAINPID=1\x00")
    assert ear.next() == "STATUS=fine\\nMAINPID=1\\x00"


def test_no_child_inherits_the_way_to_the_manager(ear: Ear) -> None:
    """What came in the environment is taken out of it."""
    environ = {"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    Notifier(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    ("said", "patience"),
    [
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_only_who_is_meant_is_counted(said: dict[str, str], patience: float | None, ear: Ear) -> None:
    """A parent's patience is not ours, and who is not counted does not say that he lives."""
    notifier = Notifier({"NOTIFY_SOCKET": ear.address} | said)
    assert notifier.patience == patience
    notifier.alive()
    assert ear.hears_nothing() is (patience is None)


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "/" + "x" * 200])
def test_without_a_manager_nobody_is_told(address: str) -> None:
    """A service works the same without systemd, or when the socket has gone."""
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.ready()
    notifier.close()


# ---------------------------------------------------------------------- services


def start(home: Home, ear: Ear, name: str, seconds: float = 30.0) -> "subprocess.Popen[bytes]":
    home.environ |= {"NOTIFY_SOCKET": ear.address, "WATCHDOG_USEC": str(int(seconds * 1e6))}
    return home.start(name, wait=False)


@pytest.mark.parametrize("name", ["daemon", "watchdog"])
def test_a_service_tells_its_manager_how_it_is(name: str, home: Home, ear: Ear) -> None:
    """Ready after what comes first, with the queue in its status; reading settings; stopping."""
    home.submit("exit 0", user="ann", run_at="2099-01-01T00:00:00Z")
    service = start(home, ear, name)
    assert ear.next().startswith("EXTEND_TIMEOUT_USEC=")
    assert "READY=1" not in "".join(ear.heard)
    ear.until("READY=1")
    if name == "daemon":
        ear.until("STATUS=0 of 4 slots used, 1 waiting")
    service.send_signal(signal.SIGHUP)
    ear.until("RELOADING=1")
    ear.until("READY=1")
    service.send_signal(signal.SIGTERM)
    ear.until("STOPPING=1")


@pytest.mark.parametrize("name", ["daemon", "watchdog"])
def test_signs_of_life_come_from_the_loop_in_time(name: str, home: Home, ear: Ear) -> None:
    """Though nothing happens for an hour, each half of the manager's patience brings one; a stopped loop gives none."""
    home.configure(**NO_POLLS)
    service = start(home, ear, name, seconds=0.4)
    ear.until("READY=1")
    for _ in range(3):
        before = time.monotonic()
        ear.until("WATCHDOG=1")
        assert time.monotonic() - before < 0.4
    assert len(os.listdir(f"/proc/{service.pid}/task")) == 1  # there is nobody else in it who could speak
    os.kill(service.pid, signal.SIGSTOP)
    eventually(ear.hears_nothing, "it goes on")
    stays(ear.hears_nothing, "nobody but the loop says that it lives", 0.6)
    os.kill(service.pid, signal.SIGCONT)
    ear.until("WATCHDOG=1")


def test_wrong_settings_are_seen_in_the_status(home: Home, ear: Ear) -> None:
    """Until they are right: that older ones are in force is easily forgotten."""
    daemon = start(home, ear, "daemon")
    ear.until("STATUS=0 of 4")
    good = Path(home.paths.config_file).read_text()
    Path(home.paths.config_file).write_text("slots: 3\n")
    daemon.send_signal(signal.SIGHUP)
    ear.until("STATUS=the settings are wrong, older ones are in force; 0 of 4 slots used, 0 waiting")
    Path(home.paths.config_file).write_text(good)
    daemon.send_signal(signal.SIGHUP)
    ear.until("STATUS=0 of 4 slots used, 0 waiting")


def test_a_reload_makes_nobody_ready(home: Home, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is asked to read its settings while it cannot prepare says nothing of being ready, or so again."""
    monkeypatch.setattr(process, "RETRY", 0.01)
    environ = home.environ | {"NOTIFY_SOCKET": ear.address}
    daemon = process.Daemon(home.paths, environ, open_log(home.paths.log_file, "daemon"))
    real = daemon.dispatcher.reconcile

    def reconcile() -> None:
        if len(ear.heard) > 1:
            return real()
        assert ear.next().startswith("EXTEND_TIMEOUT_USEC=")
        daemon.waiter.asked_to_reload = True
        raise OSError(errno.ENOSPC, "test")

    def stop() -> None:
        daemon.waiter.asked_to_stop = True

    monkeypatch.setattr(daemon.dispatcher, "reconcile", reconcile)
    daemon.run(ready=stop)
    daemon.close()
    assert home.log("settings_reloaded")
    ear.until("READY=1")
    assert not any("RELOADING" in said for said in ear.heard)


def test_agents_cannot_speak_to_the_manager(home: Home, ear: Ear) -> None:
    """Neither spawner nor supervisor nor agent has the socket's name, so none can say that the daemon lives."""
    start(home, ear, "daemon")
    home.start("watchdog", wait=False)
    assert home.wait_over(home.submit("! env | grep -q NOTIFY_SOCKET"))[0].status is Status.COMPLETED
    living = [Path(f"/proc/{one.pid}/environ").read_bytes() for one in home.processes()]
    assert sum(b"NOTIFY_SOCKET" in environ for environ in living) <= 2  # as the two services were started
