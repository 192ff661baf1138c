"""Writing files so that neither a crash nor a power cut leaves half of one.

`write_durably` is for what was promised to somebody; `write_atomically` is for projections that can be
made again (lock mirrors, heartbeats, capacity.json).
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from fairlead.base.errors import FairleadError

_UNIQUE_BYTES = 8
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class UnsafeFileError(FairleadError):
    """The file is not a plain file that may be read here."""


class SyncFailedError(FairleadError):
    """The disk did not take what was written before, and asking again would hide that: stop, and look at the disk."""


def write_atomically(path: str, data: bytes, *, synced: bool = False) -> None:
    """Replace the file as a whole; readers see the old or the new content.

    A power cut may take it; with `synced` content it brings back the old file at the worst, never half of a new one.
    """
    temporary = _temporary(path)
    try:
        _create(temporary, data, sync=synced)
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def write_durably(path: str, data: bytes) -> None:
    """Replace the file as a whole and return once a power cut cannot take it back."""
    write_atomically(path, data, synced=True)
    _sync_names(os.path.dirname(path))


def create_complete(path: str, data: bytes) -> bool:
    """Create the file with its content in one step; False if the name is taken.

    link(2) is as exclusive as O_EXCL, and nobody ever sees the file empty: the content is synced first, or else a power
    cut could keep the name and lose what is in it.
    """
    temporary = _temporary(path)
    try:
        _create(temporary, data, sync=True)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        remove(temporary)
    return True


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    with _no_second_try(path):
        _sync_names(path)


def _sync_names(path: str) -> None:
    with opened(path or ".", os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def sync_file(path: str) -> None:
    """Make a file's content durable."""
    with opened(path, os.O_RDONLY | os.O_NOFOLLOW) as fd, _no_second_try(path):
        os.fsync(fd)


def sync_files(paths: Iterable[str]) -> None:
    """Make the content of several files durable; those that have gone are passed over.

    All are on their way to the disk before the first is waited for: then they mostly share one commit of its journal.
    """
    with ExitStack() as stack:
        fds = {}
        for path in paths:
            with suppress(FileNotFoundError):
                fds[stack.enter_context(opened(path, os.O_RDONLY | os.O_NOFOLLOW))] = path
        for fd in fds:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for fd, path in fds.items():
            with _no_second_try(path):
                os.fsync(fd)


def sync_file_system(path: str) -> None:
    """Make everything on the file system that holds this path durable: one call for a whole batch."""
    import ctypes  # noqa: PLC0415 - the short commands do not sync, and should not pay for it

    libc = ctypes.CDLL(None, use_errno=True)
    with opened(path, os.O_RDONLY) as fd, _no_second_try(path):
        if libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)


@contextmanager
def _no_second_try(path: str) -> Iterator[None]:
    """After an I/O error the kernel forgets what it could not write: a second sync would say yes to lost data.

    (`write_durably` may be tried again: it writes everything anew.)
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            raise SyncFailedError(f"{path}: {error.strerror}; what was written there may be lost.") from error
        raise


def make_directory(path: str, mode: int = 0o700) -> None:
    """Make the directory and its parents, durably, if they are not there."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path) or "."
    make_directory(parent, mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):  # else another process made it just now
            raise
    sync_directory(parent)


def remove(path: str) -> bool:
    """Remove the file; False if it was not there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def read_plain(path: str, limit: int, *, linked: bool = False, owner: int | None = None) -> bytes:
    """Read a regular file of at most `limit` bytes, following no link and waiting for nobody.

    With `linked` it may have several names: only where nobody else can give it one that he gains by. With an `owner` it
    must be that user's.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeFileError("it is a symbolic link; drop the file itself") from error
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise UnsafeFileError("it is a socket or a device, not a regular file") from error
        raise
    try:
        return _read_checked(fd, limit, linked=linked, owner=owner)
    finally:
        os.close(fd)


def read_json(path: str, limit: int = 16 << 20) -> Any:  # noqa: ANN401 - JSON is whatever the file holds
    """Read a JSON file that Fairlead wrote."""
    import json  # noqa: PLC0415 - the short commands read no JSON, and should not pay for it

    return json.loads(read_plain(path, limit))


def names_in(path: str) -> list[str]:
    """The names in a directory, sorted; none if it is not there."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def folders_in(path: str) -> list[str]:
    """The paths of the folders in a folder, sorted; stray files are passed over."""
    return [entry for name in names_in(path) if os.path.isdir(entry := os.path.join(path, name))]


@contextmanager
def opened(path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """An open descriptor that is closed at the end of the block."""
    fd = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write everything, however many calls that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove_tree(path: str) -> None:
    """Remove a directory with all below it; nested deeper than Python follows, rm goes all the way."""
    import shutil  # noqa: PLC0415 - the short commands remove no trees, and should not pay for it
    import subprocess  # noqa: PLC0415 - as above

    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:
        subprocess.run(["/bin/rm", "-rf", "--", path], check=False)


def remove_all(paths: Iterable[str]) -> None:
    """Remove those of the files that are there."""
    for path in paths:
        remove(path)


def _read_checked(fd: int, limit: int, *, linked: bool, owner: int | None) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError("it is not a regular file")
    if owner is not None and status.st_uid != owner:
        raise UnsafeFileError("it belongs to somebody else; copy it instead")
    if status.st_nlink > 1 and not linked:
        raise UnsafeFileError("it has more than one name (hard link); copy it instead")
    if status.st_size > limit:
        raise UnsafeFileError(f"it has {status.st_size} bytes; at most {limit} are allowed")
    chunks, room = [], limit + 1
    while room > 0 and (chunk := os.read(fd, room)):
        chunks.append(chunk)
        room -= len(chunk)
    if room <= 0:
        raise UnsafeFileError(f"it grew beyond {limit} bytes while it was read")
    return b"".join(chunks)


def _create(path: str, data: bytes, *, sync: bool) -> None:
    with opened(path, _NEW_FILE) as fd:
        write_all(fd, data)
        if sync:
            os.fsync(fd)


def is_temporary(name: str) -> bool:
    """Whether a name is one of those that files have while they are written here."""
    front, _, unique = name.removesuffix(".tmp").rpartition(".")
    return name.endswith(".tmp") and front.startswith(".") and _is_unique(unique)


def _is_unique(text: str) -> bool:
    return len(text) == 2 * _UNIQUE_BYTES and not text.strip("0123456789abcdef")


def _temporary(path: str) -> str:
    """A name beside the target that nobody uses, not even one who died earlier with this process's pid.

    Of the target's name only so much is kept that the kernel's 255 bytes suffice in any alphabet.
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name[:40]}.{os.urandom(_UNIQUE_BYTES).hex()}.tmp")
