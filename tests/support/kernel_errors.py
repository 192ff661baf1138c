"""System calls that really fail: the kernel itself refuses them to this process, from now on and for good."""

import ctypes
import os
import platform
import struct

#: Numbers of the calls, by machine.
_NUMBERS = {
    "x86_64": {"fsync": 74, "fdatasync": 75, "syncfs": 306, "rename": 82},
    "aarch64": {"fsync": 82, "fdatasync": 83, "syncfs": 267, "rename": 38},
}
KNOWN = platform.machine() in _NUMBERS

_LOAD_NUMBER, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse(call: str, error: int) -> None:
    """Let one system call fail with this error, by a seccomp filter; for processes that end soon after."""
    number = _NUMBERS[platform.machine()][call]
    code = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (_LOAD_NUMBER, 0, 0, 0),
            (_IF_EQUAL, 0, 1, number),
            (_RETURN, 0, 0, _ERROR | error),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(code)
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    _prctl(_SET_NO_NEW_PRIVILEGES, 1, 0)
    _prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(program))


def _prctl(option: int, first: int, second: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
