"""The control arm's library: preloaded, it makes every sync a lie. What is lost then shows that the proof can see."""

import os
import shutil
import subprocess

_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nosync.c")


def why_not() -> str:
    """Why the library cannot be made here; empty if it can."""
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def environment(directory: str) -> dict[str, str]:
    """Compile it into a directory; returns what a process needs in its environment to use it."""
    library = os.path.join(directory, "nosync.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
    return {"LD_PRELOAD": library}
