"""The journal's own protocol: fields as they are, with their lengths, so that no value can pretend to be a field.

A datagram of `NAME=value` lines, and of lengths and bytes where a value has line ends; what is too large for a
datagram is handed over as a sealed file in memory.
"""

import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
#: A journal that does not read is waited for this long, in seconds.
_PATIENCE = 1.0
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Journal:
    """The way to the journal of this host."""

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(_PATIENCE)

    def send(self, fields: Mapping[str, str]) -> None:
        """One entry, whole or not at all."""
        data = b"".join(_field(name, value) for name, value in fields.items())
        try:
            self._socket.sendto(data, self._address)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            self._send_file(data)

    def _send_file(self, data: bytes) -> None:
        fd = os.memfd_create("journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALED)
            # The descriptor alone: the journal takes no file from a datagram that says something itself.
            # (`socket.send_fds` forgets the address.)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            self._socket.sendmsg([b""], [rights], 0, self._address)


def journal_behind_stderr(environ: Mapping[str, str]) -> Journal | None:
    """The journal, if it is what takes this process's standard error; JOURNAL_STREAM may be a parent's."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return Journal() if environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}" else None


def _field(name: str, value: str) -> bytes:
    """One field; half surrogates, as in file names that are no UTF-8, are spelled out."""
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
