"""Intake through a real porter's clerks: files of several users, whoever is killed or stopped on the way."""

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.crashing import _arm
from tests.support.patience import PATIENCE, eventually, stays
from tests.support.porters import USERS, RealPorter, as_user, real_porter, real_process

from fairlead.base.ids import new_id
from fairlead.base.logs import open_log
from fairlead.conductor.launcher import ProcessLauncher
from fairlead.conductor.porter import Porter
from fairlead.config.paths import Kind, Paths
from fairlead.config.schema import Config
from fairlead.daemon import deliveries
from fairlead.daemon.deliveries import Deliveries
from fairlead.daemon.dispatcher import Dispatcher
from fairlead.daemon.spool import Spool
from fairlead.queue.admit import Admission, Claimed
from fairlead.queue.instance import Instance
from fairlead.queue.store import Filter
from fairlead.queue.task import Task

_SETTINGS: dict[str, Any] = {"users": {"allow": list(USERS)}, "intervals": {"settle": 0.01}}


class Intake:
    """A daemon's intake in this process, pass by pass."""

    def __init__(self, porter: RealPorter, patience: float = 5.0, **settings: Any) -> None:  # noqa: ANN401 - YAML
        self.porter = porter
        home = str(porter.place / "home")
        paths = Paths(home, run=f"{home}/run", spool=str(porter.spool), kind=Kind.SYSTEM)
        for folder in paths.directories():
            os.makedirs(folder, mode=0o700, exist_ok=True)
        Path(paths.config_file).write_text(yaml.safe_dump(_SETTINGS | settings))
        self.log_file = Path(paths.log_file)
        self.paths = paths
        self.instance = Instance(paths, {}, open_log(paths.log_file, "test", "debug"))
        clock, log = self.instance.clock, self.instance.log
        self.deliveries = Deliveries(paths.spool, Porter(porter.path, patience), self.instance.store, clock, log)
        spool = Spool(paths, clock, settle=0.01, inotify=False)
        launcher = ProcessLauncher(paths.error_log, paths.bells)
        self.dispatcher = Dispatcher(self.instance, launcher, spool, self.deliveries)

    def look(self) -> None:
        """One pass over what was dropped."""
        self.dispatcher.look_around = True
        self.dispatcher.take_in_files()

    def until(self, done: Callable[[], object], what: str = "it does not come in") -> None:
        """Pass after pass, until it is done."""

        def look() -> bool:
            self.look()
            return bool(done())

        eventually(look, what)

    def tasks(self) -> list[Task]:
        """All tasks."""
        return self.instance.store.list_tasks(Filter(limit=100_000))

    def prompts(self) -> list[tuple[str, str]]:
        """Whose task each is, and what it says."""
        return sorted((task.spec.user, task.spec.prompt) for task in self.tasks())

    def log(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log that tell of this."""
        written = self.log_file.read_text() if self.log_file.exists() else ""
        lines = [json.loads(line) for line in written.splitlines()]
        return [line for line in lines if line["event"] == event]

    def left(self, user: str) -> list[str]:
        """What lies in a user's spool, hidden or waiting or not."""
        place = self.porter.spool / user
        return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())

    def is_settled(self) -> bool:
        """Whether nothing waits for anything any more."""
        self.look()
        return not self.deliveries.sessions and not any(map(self.left, USERS)) and not os.listdir(self.paths.intake)

    def close(self) -> None:
        """The daemon goes."""
        self.dispatcher.close()
        self.instance.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is given up is tried again soon."""
    monkeypatch.setattr(deliveries, "PATIENCE", 0.5)
    monkeypatch.setattr(deliveries, "AWAY", 0.05)
    monkeypatch.setattr(deliveries, "SETTLING", 0.05)


@pytest.fixture
def porter() -> Iterator[RealPorter]:
    """A porter for three users."""
    with real_porter(*USERS) as porter:
        yield porter


@pytest.fixture
def intake(porter: RealPorter) -> Iterator[Intake]:
    """Intake from their spools."""
    with closing(Intake(porter)) as intake:
        yield intake


def drop(porter: RealPorter, user: str, prompt: str, name: str = "", **fields: Any) -> Path:  # noqa: ANN401 - YAML
    """A task file of that user."""
    return porter.drop(user, name or f"{prompt}.json", json.dumps({"prompt": prompt} | fields).encode())


# --- Taking in ---


def test_what_users_drop_becomes_tasks_of_theirs(porter: RealPorter, intake: Intake) -> None:
    """Each his own, whatever is said in it of others; nothing is left in their spools."""
    for user in USERS:
        drop(porter, user, f"of-{user}")
    intake.until(intake.is_settled)
    assert intake.prompts() == sorted((user, f"of-{user}") for user in USERS)


def test_a_flood_by_one_is_no_delay_to_another(porter: RealPorter, intake: Intake) -> None:
    """Who drops one file after that has his task long before the flood is over."""
    for number in range(300):
        drop(porter, "bin", f"{number}")
    intake.until(lambda: len(intake.tasks()) > 10)
    drop(porter, "daemon", "one")
    intake.until(lambda: ("daemon", "one") in intake.prompts())
    assert len(intake.tasks()) < 290
    intake.until(intake.is_settled)
    assert len(intake.tasks()) == 301


def test_users_take_turns_where_clerks_are_few(
    porter: RealPorter, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other has one, and all come in."""
    monkeypatch.setattr(deliveries, "MOST_SESSIONS", 1)
    for user in USERS:
        for number in range(3):
            drop(porter, user, f"{number}")
    intake.until(intake.is_settled)
    assert len(intake.tasks()) == 9


def test_a_spool_that_is_made_later_is_looked_at(intake: Intake) -> None:
    """Its user has joined meanwhile: what he drops comes in without anybody's doing."""
    with real_porter() as porter, closing(Intake(porter)) as other:
        other.look()
        assert other.deliveries.places == {}
        (porter.spool / "bin").mkdir(mode=0o750)
        (porter.spool / "no name").mkdir()
        os.chown(porter.spool / "bin", os.stat(intake.porter.spool / "bin").st_uid, 0)
        other.dispatcher.look_around = False
        eventually(lambda: os.path.exists(porter.spool / "bin"), "")
        other.dispatcher.take_in_files()
        assert list(other.deliveries.places) == ["bin"]


def test_a_user_who_may_not_use_the_queue_is_no_trouble_to_others(porter: RealPorter, intake: Intake) -> None:
    """He has a spool from better days: what lies there stays, and it is logged why."""
    (porter.spool / "games").mkdir()
    (porter.spool / "games" / "x.json").write_text("{}")
    drop(porter, "bin", "x")
    intake.until(lambda: intake.prompts() == [("bin", "x")])
    assert "games may not use this queue" in intake.log("no_clerk")[0]["error"]
    assert (porter.spool / "games" / "x.json").exists()


def test_a_file_that_is_being_written_is_waited_for(porter: RealPorter, intake: Intake) -> None:
    """Half of a file is never taken for all of it."""
    path = drop(porter, "bin", "whole")
    with path.open("r+b") as file:
        stays(lambda: intake.look() is None and not intake.tasks(), "it is taken")  # type: ignore[func-returns-value]
        file.seek(0, 2)
        file.write(b" ")
    intake.until(intake.is_settled)
    assert intake.prompts() == [("bin", "whole")]


def test_nothing_stays_open_of_deliveries(porter: RealPorter, intake: Intake) -> None:
    """However many there were."""
    drop(porter, "bin", "first")
    intake.until(intake.is_settled)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        drop(porter, "bin", f"{number}")
        drop(porter, "daemon", f"{number}", name="bad.json", nonsense=1)
        intake.until(lambda: intake.deliveries.sessions)
        intake.until(lambda: not intake.deliveries.sessions)
    assert len(os.listdir("/proc/self/fd")) == before
    porter.wait_clerks(0)


# --- Refusing ---


def test_a_refused_file_is_explained_where_its_user_looks(porter: RealPorter, intake: Intake) -> None:
    """In his own spool, as his own file, once; nobody else has anything of it, and the good ones come in."""
    porter.drop("bin", "bad.yaml", b"{")
    porter.drop("bin", "forged.json", b'{"prompt": "x", "user": "daemon"}')
    porter.drop("bin", "huge.yaml", b"x" * (1 << 20) + b"x")
    drop(porter, "bin", "good")
    intake.until(lambda: intake.prompts() == [("bin", "good")] and len(intake.left("bin")) == 6)
    assert intake.left("bin") == [
        f"rejected/{name}{end}" for name in ("bad.yaml", "forged.json", "huge.yaml") for end in ("", ".error")
    ]
    said = (porter.spool / "bin" / "rejected" / "forged.json.error").read_text()
    assert "this is daemon's, but bin submits it" in said
    assert as_user("bin", lambda: open(porter.spool / "bin" / "rejected" / "bad.yaml.error").close()) == 0
    assert intake.left("daemon") == []
    for _ in range(3):
        intake.look()
    assert len(intake.log("rejected")) == 3


def test_a_name_that_was_changed_while_it_waited_gains_nothing(porter: RealPorter, intake: Intake) -> None:
    """Another's task's id, one from the future, one of his own: the first two are refused, the last one is known."""
    drop(porter, "daemon", "others")
    drop(porter, "bin", "own")
    intake.until(intake.is_settled)
    ids = {task.spec.user: task.id for task in intake.tasks()}
    future = new_id(int(time.time() * 1000) + 3_600_000)
    for number, task_id in enumerate((ids["daemon"], future, ids["bin"])):
        path = drop(porter, "bin", "forged", name=f".{number}.json")
        path.rename(porter.spool / "bin" / ".intake" / f"{task_id}@{number}.json")
    drop(porter, "bin", "more")
    intake.until(lambda: len(intake.tasks()) == 3 and len(intake.left("bin")) == 4)
    assert intake.prompts() == [("bin", "more"), ("bin", "own"), ("daemon", "others")]
    said = [(porter.spool / "bin" / "rejected" / f"{number}.json.error").read_text() for number in (0, 1)]
    assert "to another task's; drop it again" in said[0]
    assert "its name was changed while it waited; drop it again" in said[1]


def test_whoever_has_too_much_in_his_spool_is_told_once(porter: RealPorter) -> None:
    """Where he will look; his files come in all the same."""
    with closing(Intake(porter, limits={"spool_files": 5})) as intake:
        for number in range(8):
            drop(porter, "bin", f"{number}")
        intake.until(lambda: len(intake.tasks()) == 8 and not intake.deliveries.sessions)
        assert intake.left("bin") == ["rejected/spool-is-full.error"]
        said = (porter.spool / "bin" / "rejected" / "spool-is-full.error").read_text()
        assert "limits.spool_files is 5" in said
        assert len(intake.log("over_quota")) == 1


def test_a_spool_where_nothing_can_be_moved_is_its_users_affair(porter: RealPorter, intake: Intake) -> None:
    """A file in place of the folders that are needed: he is left alone for a while, the others come in."""
    for name in (".intake", "rejected"):
        porter.drop("bin", name, b"")
    drop(porter, "bin", "x")
    drop(porter, "daemon", "y")
    intake.until(lambda: intake.prompts() == [("daemon", "y")])
    intake.until(lambda: intake.log("clerk_given_up"))
    assert intake.log("clerk_given_up")[0]["user"] == "bin"
    (porter.spool / "bin" / ".intake").unlink()
    intake.until(lambda: ("bin", "x") in intake.prompts())


# --- Whoever is killed or stopped ---

STEPS = [
    ("fairlead.daemon.deliveries:Deliveries._open", "after", 1),
    ("fairlead.queue.admit:Admission.lay", "before", 1),
    ("fairlead.queue.admit:Admission.lay", "after", 1),
    ("fairlead.queue.admit:Admission.lay", "after", 2),
    ("fairlead.queue.admit:Admission._read", "before", 1),
    ("fairlead.queue.admit:Admission._make_durable", "after", 1),
    ("fairlead.queue.sqlite.admission:Admission.add", "before", 1),
    ("fairlead.queue.sqlite.admission:Admission.add", "after", 1),
    ("fairlead.queue.admit:Admission._accept", "after", 1),
    ("fairlead.queue.admit:Admission._put_aside", "before", 1),
    ("fairlead.queue.admit:Admission._put_aside", "after", 1),
    ("fairlead.daemon.deliveries:Deliveries.settle", "before", 1),
    ("fairlead.daemon.deliveries:Deliveries.settle", "after", 1),
]


@pytest.mark.parametrize(("place", "when", "call"), STEPS)
def test_a_daemon_killed_at_any_step_loses_and_doubles_nothing(
    porter: RealPorter, place: str, when: str, call: int
) -> None:
    """Its successor has each file once: as a task, or refused and explained."""
    for number in range(3):
        drop(porter, "bin", f"{number}")
    drop(porter, "daemon", "bad", nonsense=1)
    _die_at(porter, place, when, call)
    with closing(Intake(porter)) as intake:
        intake.dispatcher.reconcile()
        refused = ["rejected/bad.json", "rejected/bad.json.error"]
        intake.until(lambda: len(intake.tasks()) == 3 and intake.left("daemon") == refused)
        intake.until(lambda: not intake.left("bin") and not os.listdir(intake.paths.intake))
        assert intake.prompts() == [("bin", f"{number}") for number in range(3)]


def _die_at(porter: RealPorter, place: str, when: str, call: int) -> None:
    """A daemon in a process of its own."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            _arm(place, when, call)
            intake = Intake(porter)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                intake.look()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("when", ["before he is asked", "before he is told"])
def test_a_clerk_that_his_user_ends_or_stops_is_that_users_trouble_alone(
    porter: RealPorter, intake: Intake, number: int, when: str
) -> None:
    """His files come in later, once each; everybody else's come in at once."""
    intake.until(intake.is_settled)
    porter.wait_clerks(0)
    drop(porter, "bin", "late")
    if when == "before he is asked":
        intake.deliveries.look_around()
        intake.deliveries._open_sessions()
        _signal(porter, number)
    else:
        # Whatever he has handed over is entered; that he cannot be told.
        collect = intake.deliveries.collect

        def collect_and_end(admission: Admission, config: Config) -> list[Claimed]:
            waiting = collect(admission, config)
            if waiting:
                intake.deliveries.collect = collect  # type: ignore[method-assign]
                _signal(porter, number)
            return waiting

        intake.deliveries.collect = collect_and_end  # type: ignore[method-assign]
        intake.until(lambda: intake.prompts() == [("bin", "late")])
    drop(porter, "daemon", "soon")
    before = time.monotonic()
    intake.until(lambda: ("daemon", "soon") in intake.prompts())
    assert time.monotonic() - before < 0.4
    intake.until(intake.is_settled)
    assert intake.prompts() == [("bin", "late"), ("daemon", "soon")]
    assert len(intake.log("clerk_given_up")) == 1
    for pid in porter.clerks():
        os.kill(pid, signal.SIGKILL)


def _signal(porter: RealPorter, number: int) -> None:
    for pid in porter.wait_clerks(1):
        os.kill(pid, number)


def test_without_a_porter_nobody_waits_and_when_he_is_back_all_comes_in(porter: RealPorter, intake: Intake) -> None:
    """He was killed in the middle of it, with all his clerks or without."""
    drop(porter, "bin", "before")
    intake.until(lambda: intake.deliveries.sessions)
    porter.process.kill()
    porter.process.wait()
    for user in USERS:
        drop(porter, user, "meanwhile")
    before = time.monotonic()
    for _ in range(10):
        intake.look()
    assert time.monotonic() - before < 1.0
    eventually(lambda: intake.look() is None and intake.log("no_porter"), "nobody notices")  # type: ignore[func-returns-value]
    with real_process(porter.place, USERS, 0):
        intake.until(intake.is_settled)
    assert intake.prompts() == sorted([("bin", "before"), *((user, "meanwhile") for user in USERS)])


def test_a_porter_that_says_nothing_is_waited_for_once(porter: RealPorter) -> None:
    """A moment, with one pass, and not for each user: what else the daemon has to do goes on."""
    with closing(Intake(porter, patience=0.3)) as intake:
        intake.until(intake.is_settled)
        for user in USERS:
            drop(porter, user, "x")
        os.kill(porter.process.pid, signal.SIGSTOP)
        before = time.monotonic()
        intake.look()
        assert time.monotonic() - before < 0.6
        os.kill(porter.process.pid, signal.SIGCONT)
        intake.until(intake.is_settled)
        assert len(intake.tasks()) == 3


def test_without_descriptors_a_spool_is_looked_at_later(
    porter: RealPorter, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not forgotten, although nothing more happens there."""
    drop(porter, "bin", "x")
    with monkeypatch.context() as patch:
        patch.setattr(intake.deliveries.porter, "hire", _no_descriptor)
        intake.look()
    assert intake.log("no_clerk")
    intake.dispatcher.look_around = False
    eventually(
        lambda: intake.dispatcher.take_in_files() is None and intake.tasks(),  # type: ignore[func-returns-value]
        "it is forgotten",
    )


def _no_descriptor(_: str) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_what_could_not_be_entered_is_delivered_again(
    porter: RealPorter, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away: nothing is told to anybody, and nothing is lost or doubled."""
    for number in range(3):
        drop(porter, "bin", f"{number}")
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr(intake.instance.store, "add", _away)
        stack.enter_context(pytest.raises(OSError, match="away"))
        intake.until(lambda: False)
    assert intake.tasks() == []
    intake.until(intake.is_settled)
    assert intake.prompts() == [("bin", f"{number}") for number in range(3)]


def _away(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, "away")


def test_a_clerk_that_cannot_be_told_is_given_up_once(porter: RealPorter, intake: Intake) -> None:
    """In the middle of a pass his line breaks: the pass goes on to its end."""
    porter.drop("bin", "link", b"")
    (porter.spool / "bin" / "link").unlink()
    (porter.spool / "bin" / "link").symlink_to("/etc/passwd")
    drop(porter, "daemon", "x")
    settle = intake.deliveries._settle

    def cut(session: Any, settled: Any) -> None:  # noqa: ANN401 - as it is there
        if settled.refused:
            intake.deliveries._settle = settle  # type: ignore[method-assign]
            session.frames.sock.shutdown(2)
        settle(session, settled)

    intake.deliveries._settle = cut  # type: ignore[method-assign]
    intake.until(lambda: ("daemon", "x") in intake.prompts() and len(intake.left("bin")) == 2)
    assert len(intake.log("clerk_given_up")) == 1
