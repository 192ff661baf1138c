"""Programs of the distribution that a test needs: installed in CI, asked for elsewhere."""

import glob
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest


def need(program: str, package: str = "") -> None:
    """See that a program is there. In CI it is installed, if need be; elsewhere the test is skipped with the reason."""
    _need(lambda: shutil.which(program) is not None, program, package or program)


def need_file(pattern: str, package: str) -> None:
    """The same for a file that is no program."""
    _need(lambda: bool(glob.glob(pattern)), pattern, package)


def _need(is_there: Callable[[], bool], what: str, package: str) -> None:
    if not is_there() and os.environ.get("CI") == "true" and os.geteuid() == 0:
        _install(package)
    if not is_there():
        pytest.skip(f"there is no {what} here; on Debian: apt-get install {package}")


def _install(package: str) -> None:
    """Let apt do it, waiting for whoever else installs something at this moment."""
    if shutil.which("apt-get") is None:
        return
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=100"]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = [*apt, "install", "--no-install-recommends", package]
    if subprocess.run(install, env=quiet, capture_output=True, check=False).returncode != 0:
        # The lists of a fresh machine are empty or old.
        subprocess.run([*apt, "update"], env=quiet, capture_output=True, check=False)
        subprocess.run(install, env=quiet, capture_output=True, check=False)
