"""A running instance for benchmarks: daemon and watchdog as processes of their own, in a directory of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.measuring import environment
from fairlead.base.bell import is_heard, ring
from fairlead.conductor import rundir
from fairlead.config.paths import Paths
from fairlead.queue.sqlite.store import SqliteStore, open_store

FAIRLEAD = (sys.executable, "-m", "fairlead.cli.main")
#: Whatever is waited for is given up after this long.
PATIENCE = 600.0
LOOK_AGAIN = 0.01


class Running:
    """An instance whose services run."""

    def __init__(self, home: str, slots: int, batch: int) -> None:
        self.paths = Paths(home)
        self.slots = slots
        # Without a language: programs that load one would be measured with it, and the baseline's do not.
        self.env = environment(os.path.dirname(home), FAIRLEAD_HOME=home, LC_ALL="C")
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        os.makedirs(home, exist_ok=True)
        with open(self.paths.config_file, "w", encoding="utf-8") as file:
            json.dump({"slots": {"max": slots}, "spool": {"batch": batch}, "limits": {"pending_warn": 10**9}}, file)

    def start(self) -> None:
        """Start both services, one after the other, and wait until they listen."""
        for name in ("watchdog", "daemon"):
            self._start(name)
        self.store: SqliteStore = open_store(self.paths.store)

    def _start(self, name: str) -> None:
        process = subprocess.Popen([*FAIRLEAD, name], env=self.env, start_new_session=True)
        self.services[name] = process
        wait_for(lambda: process.poll() is not None or is_heard(self.paths.bells, name), f"the {name}")
        if process.poll() is not None:
            raise RuntimeError(f"the {name} ended with {process.returncode}")

    def stop(self) -> None:
        """Stop both services; nothing may run any more."""
        for process in self.services.values():
            process.terminate()
        for process in self.services.values():
            process.wait(PATIENCE)

    # ------------------------------------------------------------------ tasks

    def write(self, name: str, user: str, command: Sequence[str]) -> str:
        """A task file beside the spool, to be dropped later."""
        path = os.path.join(self.paths.home, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"user": user, "command": command}, file)
        return path

    def drop(self, path: str) -> None:
        """Hand a file over, as everybody should: complete, by renaming it into the spool."""
        os.rename(path, os.path.join(self.paths.spool, os.path.basename(path)))

    def pause(self) -> None:
        """Let nothing start."""
        self.store.pause("all", by="bench", reason="", now=_now())

    def resume(self) -> None:
        """Let everything start."""
        self.store.resume("all", by="bench", now=_now())
        ring(self.paths.bells, "daemon", "resumed")

    def wait_pending(self, count: int) -> None:
        """Wait until so many tasks are queued."""
        wait_for(lambda: self._count("SELECT sum(pending) FROM users") >= count, f"{count} queued tasks")

    def wait_finished(self, count: int) -> None:
        """Wait until so many tasks have ended, and that is recorded."""
        wait_for(lambda: self.finished() >= count, f"{count} finished tasks")

    def finished(self) -> int:
        """How many tasks have ended."""
        return self._count("SELECT count(*) FROM attempts WHERE finished_at IS NOT NULL")

    def _count(self, sql: str) -> int:
        return self.store.db.value(sql) or 0

    def wait_archived(self) -> None:
        """Wait until nothing is left to do for finished tasks: they are archived, and their directories put away."""
        wait_for(self._is_idle, "the archive")

    def _is_idle(self) -> bool:
        return not self.store.unarchived(1) and not any(rundir.all_active(self.paths.conductor))

    def drain(self) -> None:
        """Let what runs end, and nothing more start."""
        self.pause()
        wait_for(lambda: self.store.count_active() == 0, "the last runs")
        self.wait_archived()


def wait_for(done: Callable[[], bool], what: str) -> None:
    """Look again and again; seldom, so that whoever is measured is not disturbed."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(LOOK_AGAIN)


@contextmanager
def running(home: str, slots: int = 4, batch: int = 500) -> Iterator[Running]:
    """An instance that runs for as long as the block lasts."""
    instance = Running(home, slots, batch)
    try:
        instance.start()
        yield instance
        instance.store.close()
    finally:
        instance.stop()


def _now() -> int:
    return time.time_ns() // 1_000_000
