"""One instance of the product, run as anybody would run it: separate processes, one directory, the command line."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from tests.proof.processes import Role, belonging_to, kill
from tests.proof.waiting import boottime, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FAIRLEAD = (sys.executable, "-m", "fairlead.cli.main")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: A service of this age may not have come to hear signals yet.
_YOUNG = 5.0
SERVICES = (Role.DAEMON, Role.WATCHDOG)
PROJECTS = ("red", "green", "blue")


@dataclass(frozen=True)
class Service:
    """A running daemon or watchdog."""

    process: subprocess.Popen[bytes]
    since: float


class Instance:
    """An instance in a directory of its own."""

    def __init__(self, home: str, logs: str, environment: dict[str, str] | None = None) -> None:
        self.home = home
        self.logs = logs
        self.environment = _environment() | {"FAIRLEAD_HOME": home} | (environment or {})
        self.services: dict[Role, Service] = {}
        #: Until when a service that was killed stays down.
        self.down: dict[Role, float] = {}
        #: Services that ended although nobody asked them to: what they were, and how they ended.
        self.crashes: list[str] = []
        self.starts = 0
        #: A file that stands in for the kernel's boot id, if this instance is to see another one.
        self.boot_id: str | None = None
        os.makedirs(logs, exist_ok=True)

    def configure(self, slots: int) -> None:
        """Write the settings: quick polls, so that what a lost ring delays is seen within the proof's time."""
        os.makedirs(self.home, exist_ok=True)
        settings = {
            "slots": {"max": slots},
            "limits": {"timeout": 120, "grace": 1},
            "intervals": {"poll": 2, "watch": 1, "heartbeat": 1, "settle": 0.5, "start_grace": 3},
            "projects": {name: {"path": self.home} for name in PROJECTS},
        }
        with open(os.path.join(self.home, "config.yaml"), "w", encoding="utf-8") as file:
            json.dump(settings, file)

    def popen(self, *arguments: str, stdout: int, log: str) -> subprocess.Popen[bytes]:
        """Start a command of the product."""
        with open(os.path.join(self.logs, log), "ab") as errors:
            return subprocess.Popen(
                [*self._in_its_boot(), *_FAIRLEAD, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=errors if stdout == subprocess.STDOUT else stdout,
                stderr=errors,
                cwd=ROOT,
                env=self.environment,
                start_new_session=True,
            )

    def _in_its_boot(self) -> tuple[str, ...]:
        """What comes before a command so that it sees the boot id it is to see: a mount of its own over the file."""
        if self.boot_id is None:
            return ()
        script = f'mount --bind "$0" {_BOOT_ID} && exec "$@"'
        return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, self.boot_id)

    # ------------------------------------------------------------------ the services

    def bring_up(self) -> list[tuple[Role, int]]:
        """Start the services, and wait until there is a spool to drop files into; returns who was started."""
        started = self.keep_alive()
        if not wait_for(lambda: os.path.isdir(self.path("spool")), 20.0):
            words = " | ".join(self._last_words(role) for role in SERVICES)
            raise RuntimeError(f"the instance did not come up: {words}")
        return started

    def keep_alive(self) -> list[tuple[Role, int]]:
        """Start what does not run, as an init system would; returns who was started."""
        due = [role for role in SERVICES if not self._runs(role) and boottime() >= self.down.get(role, 0.0)]
        return [(role, self._start(role)) for role in due]

    def _runs(self, role: Role) -> bool:
        service = self.services.get(role)
        if service is None:
            return False
        code = service.process.poll()
        if code is None:
            return True
        del self.services[role]
        if code != -signal.SIGKILL:
            age = boottime() - service.since
            self.crashes.append(f"{role} ended with {code} after {age:.1f} s: {self._last_words(role)}")
        return False

    def _start(self, role: Role) -> int:
        process = self.popen(role, stdout=subprocess.STDOUT, log=f"{role}.log")
        self.services[role] = Service(process, boottime())
        self.starts += 1
        return process.pid

    def _last_words(self, role: Role) -> str:
        with open(os.path.join(self.logs, f"{role}.log"), "rb") as file:
            lines = file.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-2:])

    def stop(self, seconds: float = 20.0) -> None:
        """Ask the services to end, and wait until they have; one that does not is a crash of its own kind."""
        asked = boottime()
        for service in self.services.values():
            service.process.terminate()
        for role, service in self.services.items():
            try:
                code = service.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.crashes.append(f"{role} did not end within {seconds:g} s of being asked to")
                service.process.kill()
                service.process.wait()
            else:
                if code != 0 and not (code == -signal.SIGTERM and asked - service.since < _YOUNG):
                    self.crashes.append(f"{role} ended with {code} when asked to end: {self._last_words(role)}")
        self.services = {}

    # ------------------------------------------------------------------ all of it

    def kill_everything(self) -> None:
        """End every process of the instance, whoever started it."""
        if not wait_for(self._all_dead, 20.0):
            raise RuntimeError(f"cannot be killed: {belonging_to(self.home)}")
        for service in self.services.values():
            service.process.wait()
        self.services = {}

    def _all_dead(self) -> bool:
        living = belonging_to(self.home)
        for process in living:
            kill(process)
        return not living

    def path(self, *parts: str) -> str:
        """A path inside the instance."""
        return os.path.join(self.home, *parts)


def _environment() -> dict[str, str]:
    """Our own, without what would point the product elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
