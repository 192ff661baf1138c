"""The system's instance under a root of its own, and real users who come to it by their numbers."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.patience import PATIENCE, eventually
from tests.support.programs import ROOT
from tests.support.programs import command as program

from fairlead.config.paths import Paths, system_paths

SERVICE, ANN, BOB, MEL, OLGA, ADA, EVE = range(60000, 60007)
SETTINGS: dict[str, Any] = {
    "users": {"allow": [f"uid-{uid}" for uid in (ANN, BOB, MEL, OLGA)]},
    "operators": [f"uid-{OLGA}"],
    "admins": [f"uid-{ADA}"],
    "projects": {"shared": {"path": "/tmp", "members": [f"uid-{ANN}", f"uid-{MEL}"]}},  # noqa: S108 - never run
}


class System:
    """A system's instance and who may answer for it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.paths: Paths = system_paths(root=root)
        self.service: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        return ours | {"FAIRLEAD_ROOT": self.root, "FAIRLEAD_INSTANCE": "system"}

    def start(self) -> None:
        """Have somebody answer, as the service's account."""
        command = program("web", "command", SERVICE, "api", "--quiet")
        self.service = subprocess.Popen(command, cwd=ROOT, env=self.environ)
        eventually(lambda: os.path.exists(self.paths.api) and self.says_ready(), "nobody answers")

    def says_ready(self) -> bool:
        return os.path.exists(self.paths.log_file) and "api_starts" in Path(self.paths.log_file).read_text("utf-8")

    def run(
        self,
        uid: int,
        *words: str,
        code: int = 0,
        **options: Any,  # noqa: ANN401 - subprocess's
    ) -> "subprocess.CompletedProcess[str]":
        """A command as a user, run to its end."""
        done = subprocess.run(
            program("web", "command", uid, *words),
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            **options,
        )
        assert done.returncode == code, f"{words} exited with {done.returncode}: {done.stderr}"
        return done

    def json(self, uid: int, *words: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.run(uid, *words, "--json").stdout)

    def refusal(self, uid: int, *words: str, code: int) -> str:
        """What a command says that fails."""
        done = self.run(uid, *words, code=code)
        assert done.stdout == ""
        return done.stderr

    def submit(self, uid: int, *words: str) -> str:
        """A task's id."""
        return self.run(uid, "submit", *words, "--prompt", "secret").stdout.strip()

    def stop(self) -> None:
        if self.service is not None:
            self.service.terminate()
            self.service.wait(PATIENCE)
            self.service = None


@contextmanager
def system_instance() -> Iterator[System]:
    """Directories as an installation makes them."""
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")
    root = tempfile.mkdtemp(prefix="fairlead-")
    one = System(root)
    try:
        for place, mode in ((root, 0o755), (one.paths.home, 0o711), (one.paths.run, 0o755), (one.paths.logs, 0o750)):
            os.makedirs(place, exist_ok=True)
            os.chmod(place, mode)
            if place != root:
                os.chown(place, SERVICE, SERVICE)
        os.makedirs(os.path.dirname(one.paths.config_file))
        Path(one.paths.config_file).write_text(yaml.safe_dump(SETTINGS), encoding="utf-8")
        yield one
    finally:
        one.stop()
        shutil.rmtree(root)
