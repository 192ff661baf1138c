"""A host with an installed queue, an attacker on it, and what must hold after whatever he does."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.booted.host import FAIRLEAD, PYTHON, Host
from tests.support.patience import eventually

SPOOLS = "/var/spool/fairlead"
STATE = "/var/lib/fairlead"
SERVICES = tuple(f"fairlead-{name}.service" for name in ("porter", "conductor", "daemon", "watchdog"))
#: In every canary: found anywhere else, it was read by somebody who should not have.
SECRET = "the-canary-sings-7c1f0d"  # noqa: S105 - nothing that opens anything
CANARIES = {"/root/canary": "root", "/etc/canary": "root", "/home/alice/canary": "alice"}
#: Where whatever the services have read could have gone to.
_LEAKS = ("/var/spool/fairlead", "/var/lib/fairlead", "/var/log/fairlead", "/run/fairlead", "/run/fairlead-porter")
#: Older than its last change by more than a day: the next reading shows in the time of the last access.
_UNREAD = 1_000_000_000
#: Attackers that are made at once.
_TROOP = 8


class Siege:
    """Users called mallory attack; alice only wants her tasks run; eve may not use the queue at all."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._titles = itertools.count()
        self._attackers = itertools.count()
        host.direct("groupadd", "--system", "fairlead")
        host.useradd("alice", "fairlead")
        host.useradd("eve")
        host.direct("chmod", "0711", "/home/alice")  # what she has is hers by its own rights
        self._lay_canaries()
        host.fairlead("install", "--system", "--enable")
        self.run_for_alice()
        self.pids = self._pids()

    def attacker(self) -> str:
        """A new user with a spool: what another one has done to his own stays his."""
        number = next(self._attackers)
        if number % _TROOP == 0:
            self._recruit(range(number, number + _TROOP))
        return f"mallory{number}"

    def _recruit(self, numbers: Iterable[int]) -> None:
        script = (
            "for number; do useradd --create-home --user-group --shell=/bin/sh --groups=fairlead mallory$number; done"
        )
        self.host.direct("/bin/sh", "-c", script, "sh", *numbers)
        self.host.systemctl("reload", "fairlead-porter.service")
        for number in numbers:
            eventually(self.spool(f"mallory{number}").is_dir, f"mallory{number} gets no spool")

    def _lay_canaries(self) -> None:
        for path, owner in CANARIES.items():
            self.host.write(path, f"prompt: echo {SECRET}\n", mode=0o600)
            self.host.direct("chown", f"{owner}:{owner}", path)
            os.utime(self.host.path(path), (_UNREAD, _UNREAD))
        self._canaries = self._seen_canaries()

    # ------------------------------------------------------------------ being somebody

    def do(self, user: str, *command: object, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, in his home, with his groups; outside of any unit, which is quicker."""
        done = self.start(user, *command)
        out, err = done.communicate(stdin)
        if check and done.returncode != 0:
            raise AssertionError(f"{command}: {done.returncode}\n{out}{err}")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def start(self, user: str, *command: object) -> subprocess.Popen[str]:
        """The same, to be ended by the caller."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", "--"]
        words = ["env", "-C", self.host.home(user), *map(str, command)]
        return subprocess.Popen(
            [*self.host.direct_command(), *become, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
        )

    def end(self, started: subprocess.Popen[str], user: str) -> None:
        """End what a user has started, with all else of his that runs; what started it for him ends with it."""
        self.host.direct("pkill", "-KILL", "-u", user, check=False)
        started.communicate()

    def sh(self, user: str, script: str, *, check: bool = True) -> str:
        """What a shell of this user prints."""
        return self.do(user, "/bin/sh", "-c", script, check=check).stdout

    def python(self, user: str, script: str, *words: object) -> str:
        """What a program of this user prints."""
        return self.do(user, PYTHON, "-c", script, *words).stdout

    # ------------------------------------------------------------------ dropping and its fruits

    def title(self) -> str:
        """A title that no other task has."""
        return f"title-{next(self._titles)}"

    def drop(self, user: str, name: str, content: str) -> None:
        """Let a user drop a file, complete."""
        script = 'cat >"$1/.$2" && mv "$1/.$2" "$1/$2"'
        self.do(user, "/bin/sh", "-c", script, "sh", f"{SPOOLS}/{user}", name, stdin=content)

    def poke(self, user: str) -> None:
        """Have somebody look at a spool now: links and the like are noticed when it is looked at the next time."""
        self.sh(user, f": > {SPOOLS}/{user}/.poke")

    def task(self, user: str, prompt: str, **more: object) -> str:
        """Let a user drop a task; returns its title."""
        title = self.title()
        self.drop(user, f"{title}.json", json.dumps({"prompt": prompt, "title": title, **more}))
        return title

    def records(self) -> list[dict[str, Any]]:
        """All tasks that have ended, as the archive has them."""
        found = []
        for path in self.host.path(f"{STATE}/archive").glob("*/[!.]*.json"):
            with contextlib.suppress(FileNotFoundError):
                found.append(json.loads(path.read_bytes()))
        return found

    def record(self, title: str) -> dict[str, Any]:
        """How the task of that title ended."""
        return eventually(
            lambda: next((one for one in self.records() if one["title"] == title), None), f"{title} does not end"
        )

    def log(self, record: dict[str, Any], name: str = "stdout.log") -> bytes:
        """What the agent of an ended task has written."""
        run = f"{record['id']}.{record['attempt']}"
        place = self.host.path(f"{STATE}/conductor/{record['project']}")
        found = eventually(lambda: list(place.glob(f"*/{run}/{name}")), f"{run} has left no log")
        return found[0].read_bytes()

    def output(self, user: str, prompt: str, **more: object) -> str:
        """What a task prints that has to end well."""
        record = self.record(self.task(user, prompt, **more))
        assert record["status"] == "completed", (record, self.log(record, "stderr.log"))
        return self.log(record).decode()

    def refusal(self, user: str, name: str) -> str:
        """The note beside a refused file."""
        note = self.host.path(f"{SPOOLS}/{user}/rejected/{name}.error")
        return eventually(lambda: note.exists() and note.read_text(), f"{name} is not refused")

    def fairlead(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The command as root, for the system's instance."""
        return self.do("root", "env", "FAIRLEAD_INSTANCE=system", FAIRLEAD, *words, check=check)

    def spool(self, user: str, name: str = "") -> Path:
        """Something in a user's spool, as this process reaches it."""
        return self.host.path(f"{SPOOLS}/{user}/{name}")

    def starting(self, user: str) -> str:
        """The unit of a user's run that is there, however far it has come."""
        return eventually(lambda: self._unit_of(user), f"no unit of {user} is there")

    def _unit_of(self, user: str) -> str:
        shown = self.host.systemctl("show", "fairlead-run-*", "--all", "--property=Id,User")
        units = [dict(line.split("=", 1) for line in unit.splitlines()) for unit in shown.split("\n\n") if unit.strip()]
        return next((unit["Id"] for unit in units if unit["User"] == user), "")

    # ------------------------------------------------------------------ what must hold

    def run_for_alice(self) -> None:
        """Her task runs through, whatever the other one does."""
        assert self.record(self.task("alice", "true"))["status"] == "completed"

    def check(self, *, restarted: bool = False) -> None:
        """Services live, canaries are intact and were never read, alice is served, nothing runs outside of units."""
        self.run_for_alice()
        if not restarted:
            assert self._pids() == self.pids, "a service is not the one that it was"
        assert self._seen_canaries() == self._canaries, "a canary was read or changed"
        assert self._leaks() == [], "what a canary holds went elsewhere"
        eventually(lambda: not self._strays(), "somebody left a process outside of his units", seconds=5.0)

    def _pids(self) -> dict[str, int]:
        return {service: self.host.main_pid(service) for service in SERVICES}

    def _seen_canaries(self) -> dict[str, object]:
        """All that can be seen of them without reading."""
        seen: dict[str, object] = {}
        for path in CANARIES:
            status = self.host.path(path).lstat()
            seen[path] = (status.st_mode, status.st_uid, status.st_nlink, status.st_size)
            seen[f"{path}, times"] = (status.st_atime_ns, status.st_mtime_ns)
        return seen

    def _leaks(self) -> list[str]:
        places = [self.host.path(place) for place in _LEAKS]
        leaks = [str(path) for path in _files(places) if SECRET.encode() in _beginning(path)]
        self.host.direct("journalctl", "--sync")
        said = self.host.direct("journalctl", "--no-pager", "--all", "--output=cat")
        return leaks + [line for line in said.splitlines() if SECRET in line]

    def _strays(self) -> list[str]:
        """Processes of users that belong to no unit of a run, but for clerks."""
        lines = self.host.direct("ps", "-eo", "user:20,cgroup:200,args").splitlines()
        return [
            line
            for line in lines
            if line.split()[0].startswith(("alice", "mallory", "eve"))
            and "/fairlead-run-" not in line
            and "/fairlead-porter.service" not in line
        ]


def _files(places: list[Path]) -> list[Path]:
    return [
        path
        for place in places
        for folder, _, names in os.walk(place)
        for name in names
        if (path := Path(folder, name)).is_file() and not path.is_symlink()
    ]


def _beginning(path: Path) -> bytes:
    """Sparse giants are empty; what leaks is at the beginning."""
    try:
        with path.open("rb") as file:
            return file.read(8 << 20)
    except FileNotFoundError:
        return b""
