"""Sockets that systemd has opened: taken by the process that they are meant for, and by nobody else."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.systemd.sockets import inherited

#: Takes what it was given, tells it, and what is left for its children.
TAKE = """if True:
    import os, sys
    from fairlead.systemd.sockets import inherited

    os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[1]))
    given = inherited(os.environ)
    print([one.getsockname() for one in given], [os.get_inheritable(one.fileno()) for one in given])
    print([name for name in os.environ if name.startswith("LISTEN")])
"""


def take(path: str, count: str, other: int = 0) -> list[str]:
    """What a process makes of a listening socket as its descriptor three."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        os.set_inheritable(door.fileno(), True)
        script = f'exec 3<&{door.fileno()}; exec "$@"'
        command = ["/bin/bash", "-c", script, "bash", sys.executable, "-c", TAKE, str(other)]
        env = os.environ | {"LISTEN_FDS": count, "LISTEN_FDNAMES": "door"}
        done = subprocess.run(command, env=env, close_fds=False, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_socket_is_taken_once(tmp_path: Path) -> None:
    """With what says so, and so that no child inherits either."""
    path = str(tmp_path / "door")
    assert take(path, "1") == [f"['{path}'] [False]", "[]"]


@pytest.mark.parametrize(("count", "other"), [("1", 1), ("0", 0), ("", 0), ("x", 0), ("-1", 0), ("²", 0)])
def test_what_is_meant_for_somebody_else_is_left_alone(tmp_path: Path, count: str, other: int) -> None:
    """Another process's, none, or what is no number; the environment is cleared of it all the same."""
    assert take(str(tmp_path / "door"), count, other) == ["[] []", "[]"]


def test_without_a_manager_there_is_none() -> None:
    """An empty environment says nothing."""
    assert inherited({}) == []
