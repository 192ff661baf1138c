"""A host of one's own for tests: a real systemd over what is installed here, with Fairlead where all may run it.

`booted` is shared by the tests of a session (each worker has its own), for tests that leave it as they found it;
`fresh_host` is booted for one test alone.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.packages import need, need_file
from tests.support.patience import eventually

ROOT = Path(__file__).parents[3]
KEEPER = Path(__file__).with_name("keeper.py")
#: Where the project is inside, for everybody to run: a virtual environment as an administrator would make it.
PREFIX = "/opt/fairlead"
FAIRLEAD = f"{PREFIX}/bin/fairlead"
PYTHON = f"{PREFIX}/bin/python3"
_ROOMS = ("base", "config", "queue", "conductor", "porter", "daemon", "watchdog", "systemd", "desk", "web", "cli")
_LAUNCHER = f"#!{PYTHON}\nimport sys\n\nfrom fairlead.cli.main import main\n\nsys.exit(main())\n"
_LIBRARY = f"{PREFIX}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


class CannotBootError(AssertionError):
    """No systemd can be had on this machine, though all that it takes seems to be there."""


class Host:
    """A booted host. Everything on it is real, and thrown away with it."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, str(KEEPER), *_binds()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests: the keeper clears up when they are gone
        )
        assert self._keeper.stdout
        assert self._keeper.stderr
        pid, _, self._console = self._keeper.stdout.readline().strip().partition(" ")
        if not pid:
            _, said = self._keeper.communicate()
            raise CannotBootError(said.strip().rpartition("\n")[2])
        #: The manager's pid, as seen from outside.
        self.pid = int(pid)
        self._enter = ["nsenter", f"--target={pid}", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--net", "--"]
        eventually(self.path("/run/systemd/private").exists, "the manager does not come up")
        state = subprocess.run(
            [*self._enter, "systemctl", "is-system-running", "--wait"], capture_output=True, text=True, check=False
        ).stdout.strip()
        assert state == "running", f"the host is {state}: {self.last_words()}"
        self._install()

    def _install(self) -> None:
        """Make the virtual environment: its packages are the tests' own, and the rooms are those of this tree."""
        interpreter = "/opt/python" if _is_hidden(sys.base_prefix) else sys.base_prefix
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.write(f"{PREFIX}/pyvenv.cfg", f"home = {interpreter}/bin\n")
        self.write(
            f"{_LIBRARY}/fairlead.pth", "\n".join(["/opt/packages", *(f"/opt/source/{room}" for room in _ROOMS)])
        )
        self.write(FAIRLEAD, _LAUNCHER, mode=0o755)
        self.path(PYTHON).symlink_to(f"{interpreter}/bin/{name}")

    # ------------------------------------------------------------------ commands

    def run(
        self,
        *command: object,
        user: str = "",
        check: bool = True,
        stdin: str = "",
        env: dict[str, str] | None = None,
        properties: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a service of its own, as root or as that user; a failure fails the test."""
        started = subprocess.run(
            self.command(*command, user=user, env=env, properties=properties),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and started.returncode != 0:
            words = " ".join(map(str, command))
            raise AssertionError(f"{words}: {started.returncode}\n{started.stdout}{started.stderr}")
        return started

    def start(self, *command: object, user: str = "", **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        """Start a command and go on; the caller ends it."""
        return subprocess.Popen(self.command(*command, user=user), **options)

    def command(
        self,
        *command: object,
        user: str = "",
        env: dict[str, str] | None = None,
        properties: tuple[str, ...] = (),
    ) -> list[str]:
        """The command line that runs a command inside."""
        run = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect"]
        run += self._as(user) if user else []
        run += [f"--setenv={name}={value}" for name, value in (env or {}).items()]
        run += [f"--property={one}" for one in properties]
        # The manager would put its own variables in place of what begins with a dollar.
        return [*self._enter, *run, "--", *(str(word).replace("$", "$$") for word in command)]

    def _as(self, user: str) -> list[str]:
        """Be that user, in his home, with the way to his manager if he has one."""
        runtime = f"/run/user/{self.direct('id', '-u', user).strip()}"
        way = [f"--setenv=XDG_RUNTIME_DIR={runtime}"] if self.path(runtime).is_dir() else []
        return [f"--uid={user}", f"--working-directory={self.home(user)}", *way]

    def fairlead(self, *words: object, user: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `fairlead`."""
        return self.run(FAIRLEAD, *words, user=user, check=check)

    def systemctl(self, *words: object, user: str = "", check: bool = True) -> str:
        """Run `systemctl`, or a user's, and return what it printed."""
        if user:
            return self.run("systemctl", "--user", "--no-pager", *words, user=user, check=check).stdout
        return self.direct("systemctl", "--no-pager", *words, check=check)

    def direct(self, *command: object, check: bool = True) -> str:
        """Run a command as root without a service around it, which is quicker; returns what it printed."""
        done = subprocess.run(self.direct_command(*command), capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def direct_command(self, *command: object) -> list[str]:
        """The command line that runs a command inside, as root and without a service around it."""
        return [*self._enter, *map(str, command)]

    # ------------------------------------------------------------------ units and the journal

    def property_of(self, unit: str, name: str, user: str = "") -> str:
        """What the manager says of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit, user=user).strip()

    def main_pid(self, unit: str, user: str = "") -> int:
        """The main process of a service, inside; 0 if it has none."""
        return int(self.property_of(unit, "MainPID", user))

    def is_active(self, unit: str, user: str = "") -> bool:
        """Whether a unit is active now."""
        return self.property_of(unit, "ActiveState", user) == "active"

    def journal(self, *words: object) -> list[dict[str, Any]]:
        """The entries of the journal that match, oldest first."""
        self.direct("journalctl", "--sync")
        printed = self.direct("journalctl", "--output=json", "--all", "--no-pager", *words)
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    # ------------------------------------------------------------------ files and users

    def path(self, inside: str) -> Path:
        """A file inside, as this process reaches it."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def write(self, inside: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file inside, with the folders above it."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def useradd(self, name: str, *groups: str) -> int:
        """Make a real user with a home of his own; returns his id."""
        more = [f"--groups={','.join(groups)}"] if groups else []
        self.direct("useradd", "--create-home", "--user-group", "--shell=/bin/sh", *more, name)
        return int(self.direct("id", "-u", name))

    def linger(self, user: str) -> None:
        """Give a user a manager of his own, as if he had logged in and stayed."""
        self.direct("loginctl", "enable-linger", user)
        uid = self.direct("id", "-u", user).strip()
        eventually(lambda: self.is_active(f"user@{uid}.service"), f"{user} gets no manager")

    def home(self, user: str) -> str:
        """Where a user lives."""
        return self.direct("getent", "passwd", user).split(":")[5]

    # ------------------------------------------------------------------ the end

    def last_words(self) -> str:
        """What the manager wrote on its console, and the last of the journal."""
        said = ""
        with contextlib.suppress(OSError):
            said = Path(self._console).read_text(errors="replace")
        return said + self.direct("journalctl", "--no-pager", "--lines=50", check=False)

    def close(self) -> None:
        """End it, with everything on it."""
        assert self._keeper.stdin
        self._keeper.stdin.close()
        self._keeper.wait()


def _binds() -> list[str]:
    """What is shown inside, to be read only: our tree, the packages, and an interpreter that others could not reach."""
    binds = [f"{ROOT}:/opt/source", f"{sysconfig.get_path('purelib')}:/opt/packages"]
    return [*binds, f"{sys.base_prefix}:/opt/python"] if _is_hidden(sys.base_prefix) else binds


def _is_hidden(place: str) -> bool:
    """Whether other users cannot get there."""
    return any(not folder.stat().st_mode & 0o001 for folder in (Path(place), *Path(place).parents))


def boot() -> Host:
    """Boot a host, or skip the test with the reason."""
    if os.geteuid() != 0:
        pytest.skip("booting a systemd takes root")
    need("systemctl", "systemd")
    need("dbus-daemon", "dbus")
    need_file("/lib/systemd/systemd", "systemd")
    need_file("/lib/*/security/pam_systemd.so", "libpam-systemd")
    for program in ("unshare", "nsenter", "setpriv"):
        need(program, "util-linux")
    spaces = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "true"]
    refused = subprocess.run(spaces, capture_output=True, text=True, check=False)
    if refused.returncode != 0:
        pytest.skip(f"the kernel gives no new name spaces here: {refused.stderr.strip()}")
    try:
        return Host()
    except CannotBootError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no systemd can be booted here: {error}")


@pytest.fixture(scope="session")
def booted() -> Iterator[Host]:
    """A booted host for tests that leave it as they found it."""
    with contextlib.closing(boot()) as host:
        yield host


@pytest.fixture
def fresh_host() -> Iterator[Host]:
    """A host that was booted for this test alone."""
    with contextlib.closing(boot()) as host:
        yield host
