"""Why a task is not running: the same decision that starts tasks, asked about one of them."""

from msgspec import Struct
from msgspec.structs import replace

from fairlead.base.bell import is_heard
from fairlead.base.clock import Clock, moment
from fairlead.config.paths import Paths
from fairlead.queue.decide import Candidate, Head, Hold, Obstacle, Reason, Snapshot, explain
from fairlead.queue.lockfiles import LockFiles
from fairlead.queue.locks import LockManager
from fairlead.queue.room import reserve_in, shortage
from fairlead.queue.services import how_to_start
from fairlead.queue.sqlite.store import SqliteStore
from fairlead.queue.states import ACTIVE, FINAL
from fairlead.queue.store import Lock, Pause
from fairlead.queue.task import Task

#: More users than this are not looked at: the answer would be "many are before you" anyway.
MOST_USERS = 10_000


class Answer(Struct, frozen=True, kw_only=True):
    """What keeps a task, most decisive first; nothing if it starts with the next pass."""

    task_id: str
    status: str
    summary: str
    obstacles: tuple[Obstacle, ...] = ()


class Why:
    """Answers for one instance."""

    def __init__(self, paths: Paths, store: SqliteStore, clock: Clock) -> None:
        self.paths = paths
        self.store = store
        self.clock = clock
        self.locks = LockManager(store, LockFiles(paths.locks), clock, paths.bells, lease=0.0)

    def answer(self, task: Task) -> Answer:
        """Why this task is not running, or what it does instead."""
        if task.status in FINAL:
            return self._say(task, _ended(task))
        if task.status in ACTIVE:
            return self._say(task, self._active(task))
        obstacles = self._obstacles(task)
        if obstacles:
            return self._say(task, obstacles[0].detail, obstacles)
        return self._say(task, "nothing is in its way: it starts with the daemon's next pass")

    def _say(self, task: Task, summary: str, obstacles: tuple[Obstacle, ...] = ()) -> Answer:
        return Answer(task_id=task.id, status=task.status, summary=summary, obstacles=obstacles)

    def _active(self, task: Task) -> str:
        since = f"since {moment(task.started_at)}" if task.started_at else "and is about to start"
        wish = f"; {task.cancel} asked it to stop" if task.cancel else ""
        missing = (
            "" if is_heard(self.paths.bells, "watchdog") else "; the watchdog does not run, so its end is not seen"
        )
        return f"it is {task.status}, attempt {task.attempt}, {since}{wish}{missing}"

    def _obstacles(self, task: Task) -> tuple[Obstacle, ...]:
        head = self._head(task)
        found = (
            *self._no_room(),
            *self._kept(task),
            *explain(self._snapshot(task), task.spec.user, task.spec.project, head),
        )
        if is_heard(self.paths.bells, "daemon"):
            return found
        stopped = f"the daemon does not run; {how_to_start(self.paths, 'daemon')}"
        return (Obstacle(reason=Reason.NO_DAEMON, detail=stopped), *found)

    def _no_room(self) -> tuple[Obstacle, ...]:
        """Too little room on the disk: nothing new is started."""
        why = shortage(self.paths.home, reserve_in(self.store.facts()))
        return (Obstacle(reason=Reason.NO_ROOM, detail=f"nothing is started now: {why}"),) if why else ()

    def _kept(self, task: Task) -> tuple[Obstacle, ...]:
        """The lock of this task's own last run, which was kept: it had one where serialization was off."""
        lock = self.store.lock(f"task:{task.id}")
        return (Obstacle(reason=Reason.QUARANTINED, detail=_quarantine("this task", lock)),) if lock else ()

    def _head(self, task: Task) -> Head:
        since = max(task.created_at, task.spec.run_at or 0)
        return Head(task_id=task.id, rank=task.spec.priority, place=task.seq, since=since)

    def _snapshot(self, task: Task) -> Snapshot:
        """Everybody who could be next, and this task's user with whatever holds him."""
        facts = self.store.facts()
        foreign = self.locks.foreign()
        whole = self.store.snapshot(
            now=self.clock.wall_ms(),
            free_slots=MOST_USERS,
            ageing=float(facts.get("ageing", "3600")),
            serialized=self._is_serialized(),
            exclude=foreign,
        )
        free = int(facts.get("slots_max", "1")) - self.store.count_active()
        own = self._own(task, foreign)
        others = tuple(candidate for candidate in whole.candidates if candidate.user != own.user)
        pauses = {pause.scope: _pause(pause) for pause in self.store.pauses()}
        return replace(whole, free_slots=free, candidates=(own, *others), pauses=pauses)

    def _is_serialized(self) -> bool:
        return self.store.facts().get("serialized", "1") == "1"

    def _running(self, user: str) -> str | None:
        """A task of the user's that runs under a lock of its own: it was started while serialization was off."""
        return next((task.id for task in self.store.active() if task.spec.user == user), None)

    def _own(self, task: Task, foreign: set[str]) -> Candidate:
        user = task.spec.user
        return replace(self.store.candidate(user), hold=self._hold(user, foreign))

    def _hold(self, user: str, foreign: set[str]) -> Hold | None:
        for pause in self.store.pauses():
            if pause.scope == f"user:{user}":
                return Hold(reason=Reason.PAUSED, detail=_pause(pause))
        lock = self.store.lock(f"user:{user}")
        if lock is not None:
            return _lock_hold(user, lock)
        if self._is_serialized() and (running := self._running(user)):
            return Hold(reason=Reason.USER_LOCKED, detail=f"task {running} of {user} is running")
        if user in foreign and (found := self.locks.files.read(user)):
            detail = f"the lock file {found.path} is not Fairlead's ({found.maker}): whoever made it has to remove it"
            return Hold(reason=Reason.FOREIGN_LOCK, detail=detail)
        return None


def _pause(pause: Pause) -> str:
    """Who paused it, why, and how it goes on."""
    kind, _, name = pause.scope.partition(":")
    what = {"all": "all starting", "user": name, "project": f"project {name}"}[kind]
    because = f": {pause.reason}" if pause.reason else ""
    scope = "" if kind == "all" else f" {pause.scope}"
    return f"{what} is paused by {pause.by}{because}; `fairlead resume{scope}` goes on"


def _lock_hold(user: str, lock: Lock) -> Hold:
    if lock.state == "quarantined":
        return Hold(reason=Reason.QUARANTINED, detail=_quarantine(user, lock))
    if lock.kind == "hold":
        return Hold(reason=Reason.USER_LOCKED, detail=f"a command with pid {lock.holder.pid} holds the lock of {user}")
    return Hold(reason=Reason.USER_LOCKED, detail=f"task {lock.task_id} of {user} is running")


def _quarantine(whose: str, lock: Lock) -> str:
    return (
        f"the lock of {whose} is quarantined: nobody could prove that all of task {lock.task_id} is gone; "
        f"look at `fairlead locks`, then `fairlead lock release {lock.user or lock.name} --force`"
    )


def _ended(task: Task) -> str:
    error = f": {task.outcome.error}" if task.outcome and task.outcome.error else ""
    again = "" if task.status == "completed" else f"; `fairlead retry {task.id}` runs it again"
    return f"it is {task.status} since {moment(task.finished_at)}{error}{again}"
