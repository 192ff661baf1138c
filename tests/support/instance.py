"""A throw-away instance: quick settings, real processes, and an end that leaves nothing behind.

Its daemon and watchdog can be played in the test's own process, pass by pass, or run as services of their own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.proof.evidence import Process
from tests.proof.processes import belonging_to, kill
from tests.support.patience import PATIENCE, eventually

from fairlead.base.bell import Listener, ring
from fairlead.base.logs import open_log
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.meta import CorruptMetaError, Meta, read_meta
from fairlead.conductor.rundir import all_active
from fairlead.config.paths import Paths
from fairlead.daemon.dispatcher import Dispatcher, MortalLauncher
from fairlead.daemon.spool import Spool
from fairlead.queue.accepted import Accepted
from fairlead.queue.archive import Archive
from fairlead.queue.instance import Instance
from fairlead.queue.operations import Operations, Submitting
from fairlead.queue.sqlite.store import SqliteStore, open_store
from fairlead.queue.states import ACTIVE, FINAL, Status
from fairlead.queue.store import Filter, Lock
from fairlead.queue.task import Task
from fairlead.queue.why import Answer, Why
from fairlead.watchdog.watchdog import Watchdog

ROOT = Path(__file__).parents[2]
FAIRLEAD = (sys.executable, "-m", "fairlead.cli.main")
#: Nothing is found by polling within a test's time: what happens, happens because somebody rang.
NO_POLLS = {"intervals": {"poll": 3600.0, "watch": 3600.0}}

_QUICK: dict[str, Any] = {
    "intervals": {"poll": 0.5, "watch": 0.5, "heartbeat": 0.1, "settle": 0.05, "start_grace": 30.0},
    "limits": {"grace": 0.3},
}


class Home:
    """One instance in a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paths = Paths(str(path))
        self.work = path / "work"
        self.environ = _clean(os.environ) | {"FAIRLEAD_HOME": str(path)}
        self.services: list[subprocess.Popen[bytes]] = []
        self._opened: list[Instance] = []
        self._dispatchers: list[Dispatcher] = []
        self._readers: list[SqliteStore] = []
        self._kept: list[Listener] = []
        self.work.mkdir(parents=True)
        self.configure()

    # ------------------------------------------------------------------ settings

    def configure(self, **settings: Any) -> None:  # noqa: ANN401 - settings are YAML
        """Write the settings: quick ones, with these over them."""
        merged = _merged(_QUICK, settings)
        Path(self.paths.config_file).write_text(yaml.safe_dump(merged), encoding="utf-8")

    # ------------------------------------------------------------------ played in this process

    def open(self) -> Instance:
        """Open the instance once more, as another process would."""
        for folder in self.paths.directories():
            os.makedirs(folder, mode=0o700, exist_ok=True)
        instance = Instance(self.paths, self.environ, open_log(self.paths.log_file, "test", "debug"))
        self._opened.append(instance)
        return instance

    def dispatcher(self, launcher: MortalLauncher | None = None, *, inotify: bool = False) -> Dispatcher:
        """A dispatcher to be played pass by pass, after what comes before its first pass."""
        instance = self.open()
        settle = instance.config.intervals.settle
        spool = Spool(self.paths, instance.clock, settle=settle, inotify=inotify)
        dispatcher = Dispatcher(instance, launcher or ProcessLauncher(self.paths.error_log, self.paths.bells), spool)
        self._dispatchers.append(dispatcher)
        instance.apply_shares()
        dispatcher.reconcile()
        return dispatcher

    def watchdog(self) -> Watchdog:
        """A watchdog to be played pass by pass."""
        return Watchdog(self.open())

    def play(
        self, done: Callable[[], bool], dispatcher: Dispatcher | None, watchdog: Watchdog | None, what: str = "the end"
    ) -> None:
        """Pass after pass of both, until it is done."""

        def look() -> bool:
            if watchdog is not None:
                watchdog.run_once()
            if dispatcher is not None:
                dispatcher.run_once()
            return done()

        eventually(look, what)

    # ------------------------------------------------------------------ as processes

    def start(self, name: str, *, prefix: tuple[str, ...] = (), wait: bool = True) -> subprocess.Popen[bytes]:
        """Start the daemon or the watchdog as a process of its own, and wait until it works."""
        command = [*prefix, *FAIRLEAD, name]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environ, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.services.append(process)
        if wait:
            self._await_start(name, process)
        return process

    def _await_start(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        def look() -> bool:
            assert process.poll() is None, f"the {name} ended with {process.returncode} instead of starting"
            return bool(self.log(f"{name}_starts", pid=process.pid))

        eventually(look, f"the {name} does not start")

    def up(self) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """Start daemon and watchdog."""
        both = self.start("daemon", wait=False), self.start("watchdog", wait=False)
        for name, process in zip(("daemon", "watchdog"), both, strict=True):
            self._await_start(name, process)
        return both

    def stop(self, *services: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        """Signal these services, or all, and wait for their end."""
        for service in services or self.services:
            service.send_signal(number)
        for service in services or self.services:
            service.wait(PATIENCE)

    def cli(self, *words: str, code: int | None = 0, **options: Any) -> "subprocess.CompletedProcess[str]":  # noqa: ANN401
        """Run a command to its end, and see that it exits as expected."""
        done = subprocess.run(
            [*FAIRLEAD, *words], cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False, **options
        )
        assert code is None or done.returncode == code, f"{words} exited with {done.returncode}: {done.stderr}"
        return done

    # ------------------------------------------------------------------ tasks

    def document(self, script: str = "true", user: str = "ann", **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
        """A task file's content: a shell script for one user."""
        return {"user": user, "prompt": script} | fields

    def drop(self, name: str, script: str = "true", user: str = "ann", **fields: Any) -> None:  # noqa: ANN401 - YAML
        """Lay a task file into the spool, whole."""
        os.makedirs(self.paths.spool, mode=0o700, exist_ok=True)
        hidden = os.path.join(self.paths.spool, f".{name}")
        Path(hidden).write_text(json.dumps(self.document(script, user, **fields)), encoding="utf-8")
        os.rename(hidden, os.path.join(self.paths.spool, name))

    def submit(self, script: str = "true", user: str = "ann", **fields: Any) -> str:  # noqa: ANN401 - YAML
        """Put a task into the queue and return its id."""
        return self.submit_all([self.document(script, user, **fields)])[0]

    def submit_all(self, documents: list[dict[str, Any]]) -> list[str]:
        """Put tasks into the queue with one commit and return their ids."""
        files = [("task.json", json.dumps(document).encode()) for document in documents]
        return [one.id for one in Submitting(self._open_once(), "ann").submit(files)]

    def operations(self) -> Operations:
        """What people may ask for."""
        instance = self._open_once()
        operators = instance.config.operators
        return Operations(self.paths, instance.store, instance.clock, instance.log, lambda: operators)

    def why(self, task_id: str) -> Answer:
        """Why a task does not run."""
        instance = self._open_once()
        return Why(self.paths, instance.store, instance.clock).answer(self.task(task_id))

    def quarantine(self, lock: Lock, evidence: dict[str, Any]) -> None:
        """Let a lock be kept with this evidence, as a run leaves it of which nobody can prove that all is gone."""
        store = self.store
        with store.db.transaction():
            store._quarantine_lock(lock, 0, evidence)

    def _open_once(self) -> Instance:
        return self._opened[0] if self._opened else self.open()

    def keep(self, listener: Listener) -> None:
        """Let a bell hang until the end of the test."""
        self._kept.append(listener)

    # ------------------------------------------------------------------ starts that are counted

    def counted(self, script: str = "true") -> str:
        """A script that leaves a mark which only one start of a task can make (O_EXCL), and tells of a second."""
        mark = f"{self.work}/start-$FAIRLEAD_TASK_ID"
        return f'(set -C; : > "{mark}") 2>/dev/null || touch {self.work}/twice-$FAIRLEAD_TASK_ID; {script}'

    def starts(self) -> list[str]:
        """The tasks that were started, each once; fails if one was started twice."""
        names = sorted(os.listdir(self.work))
        assert not [name for name in names if name.startswith("twice-")], names
        return [name.removeprefix("start-") for name in names if name.startswith("start-")]

    # ------------------------------------------------------------------ what can be seen

    @property
    def store(self) -> SqliteStore:
        """The store, for looking."""
        if not self._readers:
            eventually(lambda: os.path.exists(self.paths.store), "there is no store")
            self._readers.append(open_store(self.paths.store))
        return self._readers[0]

    def task(self, task_id: str) -> Task:
        """A task as it is now."""
        return self.store.get(task_id)

    def tasks(self) -> list[Task]:
        """All tasks, oldest first."""
        return self.store.list_tasks(Filter(limit=100_000))[::-1]

    def only_task(self) -> Task:
        """The one task there is, as soon as it is there."""
        [task] = eventually(self.tasks, "no task comes in")
        return task

    def is_over(self, *ids: str) -> bool:
        """Whether all these have ended."""
        return all(self.task(one).status in FINAL for one in ids)

    def wait_over(self, *ids: str) -> list[Task]:
        """Wait for the end of these, for services that run as processes."""
        eventually(lambda: self.is_over(*ids), f"{ids} do not end")
        return [self.task(one) for one in ids]

    def wait_over_for_good(self, *ids: str) -> list[Task]:
        """Wait until these have ended and nothing runs them again."""
        eventually(lambda: all(self.task(one).archived for one in ids), f"{ids} are not archived")
        return [self.task(one) for one in ids]

    def wait_status(self, task_id: str, status: Status) -> Task:
        """Wait until a task is in that state."""
        eventually(lambda: self.task(task_id).status is status, f"{task_id} does not become {status}")
        return self.task(task_id)

    def run_dir(self, task: Task) -> str:
        """Where a task's current attempt lives."""
        return os.path.join(self.paths.conductor, task.spec.project, "active", f"{task.id}.{task.attempt}")

    def meta(self, task_id: str) -> Meta:
        """The meta data of a task's current attempt."""
        return read_meta(self.run_dir(self.task(task_id)))

    def spoken(self, task_id: str) -> Meta | None:
        """The meta data of a task's current attempt, if its supervisor has written them."""
        with contextlib.suppress(CorruptMetaError):
            meta = self.meta(task_id)
            return meta if meta.supervisor else None
        return None

    def supervisor_of(self, task_id: str) -> Process:
        """The supervisor of a run, as soon as it has spoken."""
        supervisor = eventually(lambda: self.spoken(task_id), f"nobody supervises {task_id}").supervisor
        assert supervisor is not None
        return Process(supervisor.pid, supervisor.start)

    def beats(self, task_id: str) -> Meta:
        """Wait until a run has beaten: its processes are known then."""

        def look() -> Meta | None:
            meta = self.spoken(task_id)
            return meta if meta and meta.heartbeat.seq > 0 else None

        return eventually(look, f"{task_id} does not beat")

    def log(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of the log that tell of this."""
        if not os.path.exists(self.paths.log_file):
            return []
        with open(self.paths.log_file, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        wanted = {"event": event} | fields
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def logged(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait until the log tells of this."""
        return eventually(lambda: self.log(event, **fields), f"nobody logs {event} {fields}")[-1]

    def locks_file(self, user: str) -> str:
        """The visible lock of a user."""
        return os.path.join(self.paths.locks, f"user_{user}.lock")

    def rejected(self) -> list[str]:
        """The names of refused files, without their explanations."""
        return sorted(name for name in os.listdir(self.paths.rejected) if not name.endswith(".error"))

    def error_of(self, name: str) -> str:
        """What is said of a refused file."""
        return Path(self.paths.rejected, f"{name}.error").read_text(encoding="utf-8")

    def ring(self, name: str, word: str = "look") -> None:
        """Wake a service."""
        ring(self.paths.bells, name, word)

    def assert_tidy(self) -> None:
        """Everything has ended: no lock, no run, no file is left where the living are."""
        assert self.active() == []
        assert self.store.locks() == []
        assert [name for name in os.listdir(self.paths.locks) if name != "aside"] == []
        assert os.listdir(self.paths.intake) == []
        assert list(Accepted(self.paths.accepted).files()) == []
        assert list(Accepted(self.paths.accepted).records()) == []
        assert list(all_active(self.paths.conductor)) == []
        assert all(task.archived for task in self.tasks())
        assert sorted(Archive(self.paths.archive).ids()) == sorted(task.id for task in self.tasks())

    # ------------------------------------------------------------------ the end

    def active(self) -> list[Task]:
        """What is claimed or runs."""
        return [task for task in self.tasks() if task.status in ACTIVE]

    def processes(self) -> list[Process]:
        """Everybody of this instance who is alive."""
        return belonging_to(str(self.path))

    def clear(self) -> None:
        """End every process of the instance, whoever started it, and let go of everything."""
        # One that was forked a moment ago does not bear our name yet: those that are known are ended first.
        spawners = [_spawner(dispatcher) for dispatcher in self._dispatchers]
        for process in (*self.services, *filter(None, spawners)):
            process.kill()
            process.wait()
        for dispatcher in self._dispatchers:
            dispatcher.close()
        for listener in self._kept:
            listener.close()

        def all_dead() -> bool:
            living = self.processes()
            for process in living:
                kill(process)
            return not living

        eventually(all_dead, f"processes of {self.path} cannot be ended")
        self.clear_opened()

    def clear_opened(self) -> None:
        """Let go of the store, as if this process had ended."""
        for instance in self._opened:
            instance.close()
        for store in self._readers:
            store.close()
        self._opened, self._readers = [], []


def _spawner(dispatcher: Dispatcher) -> "subprocess.Popen[bytes] | None":
    """The spawner that a dispatcher in this process has started."""
    return dispatcher.launcher._process if isinstance(dispatcher.launcher, ProcessLauncher) else None


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Our own environment, without what would point the product elsewhere."""
    return {name: value for name, value in environ.items() if not name.startswith("FAIRLEAD_")}


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(base[key], over[key]) for key in base.keys() & over.keys() if isinstance(base[key], dict)}
    return base | over | both


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """An instance whose processes are all ended when the test is over."""
    # A spawner that this process starts is known by it, as one that a daemon starts.
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    instance = Home(tmp_path / "home")
    try:
        yield instance
    finally:
        instance.clear()
