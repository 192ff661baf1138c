"""What an installation has put where, so that what others made or changed is told from it."""

import hashlib
import json
import os
from contextlib import suppress
from enum import StrEnum

from msgspec import Struct

from fairlead.base.errors import RefusedError
from fairlead.base.files import read_json, remove, write_durably

#: Of folders that are made, whatever the caller's umask: others are to find what is in them.
_FOLDER = 0o755


class File(Struct, frozen=True, kw_only=True):
    """A file, or a link, that belongs to an installation."""

    path: str
    content: bytes = b""
    #: What it is a link to, instead of having content.
    link: str = ""
    mode: int = 0o644
    #: It is somebody's own once it is there: never replaced, and removed only with the data.
    is_settings: bool = False


class Deed(StrEnum):
    """What is done about a file, in words."""

    WRITE = "write"
    REPLACE = "replace"
    LEAVE = "leave"
    KEEP = "keep"
    REMOVE = "remove"


class Step(Struct, frozen=True):
    """One thing that is done, or would be."""

    deed: Deed
    path: str
    why: str = ""

    def __str__(self) -> str:
        """As one line."""
        return f"{self.deed:<8}{self.path}{f' ({self.why})' if self.why else ''}"

    def row(self) -> dict[str, str]:
        """For programs."""
        return {"deed": str(self.deed), "path": self.path, "why": self.why}


class Manifest:
    """The list of what was installed, with what it was, and of the folders that were made for it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.files: dict[str, str] = {}
        self.folders: list[str] = []
        if os.path.exists(path):
            try:
                data = read_json(path)
                self.files, self.folders = dict(data["files"]), list(data["folders"])
            except (ValueError, KeyError, TypeError) as error:
                raise RefusedError(
                    f"{path} says what was installed, but cannot be read ({error}): move it away."
                ) from None

    def is_ours(self, path: str, real: str) -> bool:
        """Whether what is there is what was installed."""
        return self.files.get(path) == mark_of(real) != ""

    def put(self, file: File, root: str) -> None:
        """Make a file, whole, with the folders above it."""
        real = root + file.path
        self._make_folders(os.path.dirname(file.path), root)
        if file.link:
            remove(real)
            os.symlink(file.link, real)
        else:
            write_durably(real, file.content)
            os.chmod(real, file.mode)
        self.files[file.path] = mark_for(file)

    def _make_folders(self, folder: str, root: str) -> None:
        if folder == "/":
            os.makedirs(root or folder, exist_ok=True)
        elif not os.path.isdir(root + folder):
            self._make_folders(os.path.dirname(folder), root)
            os.mkdir(root + folder)
            os.chmod(root + folder, _FOLDER)
            self.folders.append(folder)

    def forget(self, path: str) -> None:
        """It is no longer there, or no longer ours."""
        self.files.pop(path, None)

    def save(self, root: str, path: str) -> None:
        """Write the list."""
        self._make_folders(os.path.dirname(path), root)
        data = {"files": self.files, "folders": self.folders}
        write_durably(self._path, json.dumps(data, indent=2).encode() + b"\n")
        os.chmod(self._path, 0o644)

    def remove(self, root: str) -> None:
        """Remove the list, and the folders that were made and have nothing in them."""
        remove(self._path)
        for folder in sorted(self.folders, key=len, reverse=True):
            with suppress(OSError):  # somebody else's files are in it, or it has gone
                os.rmdir(root + folder)


def mark_of(real: str) -> str:
    """What tells the thing at a path from any other; nothing if nothing is there."""
    if os.path.islink(real):
        return f"link to {os.readlink(real)}"
    try:
        with open(real, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return ""


def mark_for(file: File) -> str:
    """The same of a file that is to be there."""
    return f"link to {file.link}" if file.link else hashlib.sha256(file.content).hexdigest()
