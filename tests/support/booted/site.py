"""A shared host: Fairlead installed for everybody, with its services, and users who drop files.

What became of tasks is read from the files that an administrator would look at: meta.json and the archive.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.support.booted.host import Host
from tests.support.patience import eventually

HOME = "/var/lib/fairlead"
SPOOL = "/var/spool/fairlead"
SETTINGS = "/etc/fairlead/config.yaml"
SERVICES = ("conductor", "porter", "daemon", "watchdog")
_QUICK: dict[str, Any] = {
    "intervals": {"poll": 1.0, "watch": 1.0, "heartbeat": 0.2, "settle": 0.05},
    "limits": {"grace": 0.5},
}


class Site:
    """One installation on a booted host."""

    def __init__(self, host: Host, *users: str, **settings: Any) -> None:  # noqa: ANN401 - settings are YAML
        self.host = host
        host.fairlead("install", "--system")
        self.configure(**settings)
        for user in users:
            host.useradd(user, "fairlead")
        host.systemctl("start", "fairlead.target")
        for service in SERVICES:
            eventually(lambda service=service: self.is_up(service), f"{service} does not come up")  # type: ignore[misc]
        for user in users:
            eventually(host.path(f"{SPOOL}/{user}").is_dir, f"{user} gets no spool")

    def configure(self, **settings: Any) -> None:  # noqa: ANN401 - see __init__
        """Write the settings: quick ones, with these over them."""
        merged = dict(_QUICK)
        for key, value in settings.items():
            merged[key] = merged.get(key, {}) | value if isinstance(value, dict) else value
        self.host.write(SETTINGS, yaml.safe_dump(merged))

    def reload(self) -> None:
        """Have every service read its settings again."""
        for service in ("porter", "daemon", "watchdog"):
            self.host.systemctl("reload", f"fairlead-{service}.service")

    def is_up(self, service: str) -> bool:
        """Whether a service runs."""
        return self.host.is_active(f"fairlead-{service}.service")

    def pid(self, service: str) -> int:
        """A service's main process, inside."""
        return self.host.main_pid(f"fairlead-{service}.service")

    # ------------------------------------------------------------------ tasks

    def drop(self, user: str, name: str, script: str = "true", **fields: Any) -> None:  # noqa: ANN401 - YAML
        """Drop a task file as a user does, whole: a script for the shell."""
        self.drop_text(user, f"{name}.json", json.dumps({"title": name, "prompt": script} | fields))

    def drop_text(self, user: str, name: str, text: str) -> None:
        """Drop any text as a file."""
        move = 'cat >"$1/.$2" && mv "$1/.$2" "$1/$2"'
        self.host.run("sh", "-c", move, "sh", f"{SPOOL}/{user}", name, user=user, stdin=text)

    def play(self, user: str, name: str, script: str = "true", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
        """Drop a task, and return its record when it is over."""
        self.drop(user, name, script, **fields)
        return self.ended(name)

    def records(self) -> list[dict[str, Any]]:
        """The records of all tasks that are over, oldest first."""
        found = sorted(self.host.path(f"{HOME}/archive").glob("*/*.json"))
        return [json.loads(path.read_text()) for path in found]

    def record(self, title: str) -> dict[str, Any] | None:
        """The record of the task with that title, if it is over."""
        return next((one for one in self.records() if one["title"] == title), None)

    def ended(self, title: str) -> dict[str, Any]:
        """Wait for the end of a task."""
        return eventually(lambda: self.record(title), f"{title} does not end")

    def runs(self, title: str) -> list[Path]:
        """The directories of a task's runs, over or not."""
        places = self.host.path(f"{HOME}/conductor").glob("*/*/*")
        return sorted(place for place in places if self._title(place) == title)

    def _title(self, place: Path) -> str:
        try:
            return str(json.loads((place / "task.json").read_text())["task"]["title"])
        except (OSError, ValueError, KeyError):
            return ""

    def meta(self, title: str) -> dict[str, Any] | None:
        """What is known of a task's last run."""
        for place in self.runs(title)[-1:]:
            data: dict[str, Any] = json.loads((place / "meta.json").read_text())
            return data
        return None

    def running(self, title: str) -> dict[str, Any]:
        """Wait until a task runs and has beaten; returns what is known of the run."""

        def look() -> dict[str, Any] | None:
            meta = self.meta(title)
            return meta if meta and meta["status"] == "running" and meta["heartbeat"]["seq"] > 0 else None

        return eventually(look, f"{title} does not run")

    def output(self, title: str, name: str = "stdout.log") -> str:
        """What a task's last run has written."""
        return (self.runs(title)[-1] / name).read_text()

    def rejected(self, user: str) -> dict[str, str]:
        """What is said of a user's refused files."""
        folder = self.host.path(f"{SPOOL}/{user}/rejected")
        return {path.name.removesuffix(".error"): path.read_text() for path in folder.glob("*.error")}

    # ------------------------------------------------------------------ units

    def units(self) -> list[str]:
        """The units of agents that systemd knows."""
        listed = self.host.systemctl("list-units", "--all", "--plain", "--no-legend", "fairlead-run-*")
        return [line.split()[0] for line in listed.splitlines() if line.strip()]

    def left(self) -> list[str]:
        """What is left of any run: units, lock files, run directories, drop-offs."""
        locks = list(self.host.path(f"{HOME}/locks").glob("*.lock"))
        active = list(self.host.path(f"{HOME}/conductor").glob("*/active/*"))
        drop_offs = list(self.host.path(SPOOL).glob("*/.runs/*"))
        return [*self.units(), *(path.name for path in (*locks, *active, *drop_offs))]

    def wait_tidy(self) -> None:
        """Wait until nothing of any run is left."""
        left: list[str] = []

        def look() -> bool:
            left[:] = self.left()
            return not left

        eventually(look, f"left of runs: {left}")

    def wait(self, look: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - whatever is looked for
        """Wait until that is true."""
        return eventually(look, what)
