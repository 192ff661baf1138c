"""Being an ordinary user for a moment, where the tests run as root: the kernel itself then refuses."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

#: Reading, writing and searching whatever the rights say.
_OVERRIDES = (1 << 1) | (1 << 2)
_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def ordinary_rights() -> Iterator[None]:
    """Without root's licence to read and write everything; what a user owns he still owns."""
    if os.geteuid() != 0:
        yield
        return
    before = _capabilities()
    effective, permitted, inheritable = before
    _set((effective & ~_OVERRIDES, permitted, inheritable))
    try:
        yield
    finally:
        _set(before)


def _capabilities() -> tuple[int, int, int]:
    data = ctypes.create_string_buffer(24)
    _call("capget", data)
    low, high = struct.unpack("3I3I", data.raw)[:3], struct.unpack("3I3I", data.raw)[3:]
    effective, permitted, inheritable = (one | other << 32 for one, other in zip(low, high, strict=True))
    return effective, permitted, inheritable


def _set(sets: tuple[int, int, int]) -> None:
    words = [one & 0xFFFFFFFF for one in sets] + [one >> 32 for one in sets]
    _call("capset", ctypes.create_string_buffer(struct.pack("6I", *words), 24))


def _call(name: str, data: "ctypes.Array[ctypes.c_char]") -> None:
    header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION, 0), 8)
    if getattr(_libc, name)(header, data) != 0:
        raise OSError(ctypes.get_errno(), name)
