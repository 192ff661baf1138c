"""The socket that everybody may call: from systemd, or bound here."""

import os
import socket
import stat
from collections.abc import MutableMapping
from contextlib import suppress

from fairlead.base.errors import RefusedError
from fairlead.base.files import make_directory
from fairlead.config.paths import Paths
from fairlead.systemd.sockets import inherited

#: Calls that wait to be taken.
BACKLOG = 128


class SocketInUseError(RefusedError):
    """Somebody else answers at the socket."""


class CallingPlace:
    """A listening socket, and whether it is ours to remove."""

    def __init__(self, paths: Paths, environ: MutableMapping[str, str]) -> None:
        self.path = paths.api
        given = _from_systemd(environ)
        self.is_ours = given is None
        self.socket = given or _bind(self.path, 0o666 if paths.is_system else 0o600)
        self.socket.setblocking(False)

    def close(self) -> None:
        """Let nobody call any more; systemd's socket stays, and its callers wait."""
        self.socket.close()
        if self.is_ours:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def _from_systemd(environ: MutableMapping[str, str]) -> socket.socket | None:
    """The socket that systemd opened for this very process, if it did."""
    sockets = inherited(environ)
    if not sockets:
        return None
    if len(sockets) > 1:
        raise RefusedError(f"systemd hands over {len(sockets)} sockets: the unit must have one ListenStream.")
    given = sockets[0]
    if given.family != socket.AF_UNIX or not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise RefusedError("what systemd hands over is no listening unix socket: see ListenStream= of the unit.")
    return given


def _bind(path: str, mode: int) -> socket.socket:
    """Listen at a path, however long it is; who died there is replaced, who lives is left alone."""
    directory, name = os.path.split(path)
    make_directory(directory)
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{folder}/{name}"
        _clear(path, short)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            made.bind(short)
        finally:
            os.umask(before)
        os.chmod(short, mode)
        made.listen(BACKLOG)
    finally:
        os.close(folder)
    return made


def _clear(path: str, short: str) -> None:
    try:
        if not stat.S_ISSOCK(os.lstat(short).st_mode):
            raise SocketInUseError(f"{path} is there, and is no socket: remove it.")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(short)
        except ConnectionRefusedError:
            os.unlink(short)
            return
        except OSError as error:
            raise SocketInUseError(f"{path} cannot be taken: {error.strerror}.") from error
    raise SocketInUseError(f"somebody answers at {path} already: leave the work to him, or stop him first.")
