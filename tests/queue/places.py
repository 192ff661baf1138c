"""An instance's directories, with the parts of the queue room that work on them."""

import os
from pathlib import Path
from typing import Any

from fairlead.base.clock import SystemClock
from fairlead.base.files import make_directory
from fairlead.config.paths import Kind, Paths
from fairlead.config.schema import Agent, Config
from fairlead.queue.admit import Admission, Claimed
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.sqlite.store import SqliteStore, open_store

CONFIG = Config(agents={"shell": Agent(command=("/bin/sh", "-c", "{prompt}"))}, default_user="alice")


class Words:
    """A log that is kept in memory."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append((event, fields))

    warning = error = info

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == event]


class Place:
    """One process's view of an instance."""

    def __init__(self, home: str | Path, config: Config = CONFIG, kind: Kind = Kind.OWN) -> None:
        self.paths = Paths(str(home), kind=kind)
        for directory in self.paths.directories():
            make_directory(directory)
        self.clock = SystemClock()
        self.store: SqliteStore = open_store(self.paths.store)
        self.files = LockFiles(self.paths.locks)
        self.locks = LockManager(self.store, self.files, self.clock, self.paths.bells, lease=3600.0)
        self.log = Words()
        self.admission = Admission(self.paths, config, self.store, self.clock, self.log)

    # ------------------------------------------------------------------ files on their way in

    def drop(self, name: str | bytes, content: str | bytes = "prompt: echo hello") -> None:
        """Put a file into the spool."""
        data = content if isinstance(content, bytes) else content.encode()
        path = os.path.join(os.fsencode(self.paths.spool), os.fsencode(name))
        Path(os.fsdecode(path)).write_bytes(data)

    def take(self, *names: str) -> list[Claimed]:
        """Claim files of the spool, all or those named."""
        listed = names or sorted(name for name in os.listdir(self.paths.spool) if name not in ("rejected", ".intake"))
        return [claimed for name in listed if (claimed := self.admission.claim(name))]

    def intake(self) -> list[str]:
        return sorted(os.listdir(self.paths.intake))

    def rejected(self) -> list[str]:
        return sorted(os.listdir(self.paths.rejected))

    def accepted(self) -> dict[str, str]:
        """The accepted files, by task id, with their content."""
        files = [path for path in Path(self.paths.accepted).rglob("*") if path.is_file()]
        return {path.name.partition("@")[0]: path.read_text() for path in files}

    def close(self) -> None:
        self.store.close()
