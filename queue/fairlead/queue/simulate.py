"""A day of the queue in a blink: the real decisions on a recorded or imagined load.

`imagine` makes up a load from a seed, `Simulation` plays it with `decide` and the standings themselves,
and an `Audit` that knows nothing of standings keeps count of what everybody really got.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import exp, inf, log
from random import Random

from msgspec import Struct, field

from fairlead.config.schema import FairShare
from fairlead.queue import standing
from fairlead.queue.decide import Candidate, Head, Lane, Pick, Snapshot, decide

#: Wall milliseconds at which every simulation begins: a present-day size, for the arithmetic's sake.
ORIGIN = 1_800_000_000_000


class Job(Struct, frozen=True, kw_only=True):
    """A task of the load: who, when, how long. Times are seconds from the beginning."""

    user: str
    length: float
    arrives: float = 0.0
    project: str = "default"
    rank: int = 2
    express: bool = False


class Source(Struct, frozen=True, kw_only=True):
    """Somebody's imagined tasks: how many, how long, how far apart (means of exponential laws)."""

    user: str
    tasks: int
    length: float
    #: Seconds between two arrivals; 0: all are there from the beginning.
    gap: float = 0.0
    begins: float = 0.0
    project: str = "default"
    rank: int = 2


class Start(Struct, frozen=True, kw_only=True):
    """One task that was started. Times are seconds from the beginning."""

    at: float
    task_id: str
    user: str
    project: str
    rank: int
    waited: float
    length: float
    #: Decayed seconds per weight of everybody who was waiting or running, just before.
    usage: dict[str, float]


class UserReport(Struct, frozen=True, kw_only=True):
    """What one user got, in seconds."""

    user: str
    tasks: int
    service: float
    longest: float
    mean_wait: float
    max_wait: float


class Drift(Struct, kw_only=True):
    """The worst differences of decayed seconds per weight that were seen between two users."""

    #: Between any two, whether they wait or run.
    spread: float = 0.0
    #: From somebody who waits up to anybody who has been served since he came.
    behind: float = 0.0
    #: How much of `behind` was more than the longest hold of the one who was ahead.
    behind_excess: float = 0.0
    #: The same for any two.
    spread_excess: float = 0.0


class Report(Struct, frozen=True, kw_only=True):
    """What came of a simulation."""

    seconds: float
    starts: tuple[Start, ...]
    users: tuple[UserReport, ...]
    drift: Drift


def imagine(sources: Iterable[Source], seed: int) -> tuple[Job, ...]:
    """A load that depends on the seed alone; another source changes nothing in the ones before it."""
    jobs: list[Job] = []
    for index, source in enumerate(sources):
        jobs += _jobs(source, Random(f"{seed}/{index}"))  # noqa: S311 - for replaying, not for secrets
    return tuple(jobs)


def _jobs(source: Source, random: Random) -> Iterator[Job]:
    at = source.begins
    for _ in range(source.tasks):
        length = random.expovariate(1.0 / source.length)
        yield Job(user=source.user, length=length, arrives=at, project=source.project, rank=source.rank)
        at += random.expovariate(1.0 / source.gap) if source.gap else 0.0


class _Queued(Struct, frozen=True):
    """A job in the queue."""

    job: Job
    head: Head


class _Line(Struct, kw_only=True):
    """One project of one user."""

    project: str
    weight: float
    standing: float = -inf
    queues: dict[tuple[bool, int], deque[_Queued]] = field(default_factory=dict)
    running: bool = False

    @property
    def waiting(self) -> bool:
        return any(self.queues.values())

    def lane(self) -> Lane:
        heads = tuple(queue[0].head for queue in self.queues.values() if queue)
        return Lane(project=self.project, standing=self.standing, heads=heads)


class _Member(Struct, kw_only=True):
    """One user."""

    user: str
    weight: float
    standing: float = -inf
    lines: dict[str, _Line] = field(default_factory=dict)
    running: _Queued | None = None

    @property
    def waiting(self) -> bool:
        return any(line.waiting for line in self.lines.values())

    def candidate(self) -> Candidate:
        lanes = tuple(line.lane() for line in self.lines.values() if line.waiting)
        return Candidate(user=self.user, standing=self.standing, lanes=lanes)


class Audit:
    """What everybody really got, in plain decayed seconds per weight.

    It is kept apart from the standings on purpose: a flaw in them must show here.
    """

    def __init__(self, half_life: float) -> None:
        self.drift = Drift()
        self.accounts: dict[str, _Account] = {}
        self._half_life = half_life
        self._past: dict[str, _Account] = {}

    def join(self, user: str, weight: float, now: float) -> None:
        """Somebody begins to compete: at the level of the others, or at his own past if that is more."""
        account = self._past.pop(user, None) or _Account(weight=weight, at=now)
        self._settle(account, now)
        waiting = [self.usage(other, now) for other in self.accounts.values() if other.since is None]
        running = [self._decayed(other, now) for other in self.accounts.values() if other.since is not None]
        account.settled = max(account.settled, min(waiting, default=0.0), max(running, default=0.0))
        account.served = False
        self.accounts[user] = account

    def start(self, user: str, now: float) -> None:
        """A task begins."""
        account = self.accounts[user]
        self._settle(account, now)
        account.since, account.served = now, True

    def end(self, user: str, now: float, *, leaves: bool) -> None:
        """A task ends; without another its user leaves, and takes his past with him."""
        account = self.accounts[user]
        held = _held(account, now)
        self._settle(account, now)
        account.settled += self._worth(account, held)
        account.longest = max(account.longest, held)
        account.since = None
        if leaves:
            self._past[user] = self.accounts.pop(user)

    def usage(self, account: "_Account", now: float) -> float:
        """Decayed seconds per weight, the running task included."""
        return self._decayed(account, now) + self._worth(account, _held(account, now))

    def measure(self, now: float) -> None:
        """Compare everybody with everybody; one pass suffices, since only the extremes matter."""
        everybody = [(account, self.usage(account, now)) for account in self.accounts.values()]
        lowest = min((used for _, used in everybody), default=0.0)
        worst, worst_excess = self._extremes(everybody, now)
        drift = self.drift
        drift.spread = max(drift.spread, worst - lowest)
        drift.spread_excess = max(drift.spread_excess, worst_excess - lowest)
        waiting = [used for account, used in everybody if account.since is None]
        if waiting:
            served, served_excess = self._extremes([pair for pair in everybody if pair[0].served], now)
            drift.behind = max(drift.behind, served - min(waiting))
            drift.behind_excess = max(drift.behind_excess, served_excess - min(waiting))

    def _extremes(self, everybody: list[tuple["_Account", float]], now: float) -> tuple[float, float]:
        """The most that anybody has had, and the same when each is forgiven his own longest hold."""
        most = max((used for _, used in everybody), default=0.0)
        forgiven = (used - self._worth(account, _longest(account, now)) for account, used in everybody)
        return most, max(forgiven, default=0.0)

    def _worth(self, account: "_Account", held: float) -> float:
        """What a hold that ends now is worth per weight: its beginning has faded already."""
        if self._half_life == 0.0:
            return held / account.weight
        memory = self._half_life / log(2.0)
        return memory * (1.0 - exp(-held / memory)) / account.weight

    def _settle(self, account: "_Account", now: float) -> None:
        account.settled, account.at = self._decayed(account, now), now

    def _decayed(self, account: "_Account", now: float) -> float:
        return account.settled * 0.5 ** ((now - account.at) / self._half_life) if self._half_life else account.settled


class _Account(Struct, kw_only=True):
    """What one user has had."""

    weight: float
    at: float
    settled: float = 0.0
    longest: float = 0.0
    #: When the running task began.
    since: float | None = None
    #: Something of his has run since he came.
    served: bool = False


def _longest(account: _Account, now: float) -> float:
    return max(account.longest, _held(account, now))


def _held(account: _Account, now: float) -> float:
    """Seconds that the running task has had."""
    return 0.0 if account.since is None else now - account.since


class Simulation:
    """Users, their queues and the slots, moved from one event to the next."""

    def __init__(self, jobs: Iterable[Job], *, share: FairShare, slots: int) -> None:
        self.share = share
        self.slots = slots
        self.now = ORIGIN
        self.audit = Audit(share.half_life)
        self._coming = deque(sorted(enumerate(jobs), key=lambda entry: (entry[1].arrives, entry[0])))
        self._ends: list[tuple[int, str]] = []
        self._members: dict[str, _Member] = {}
        self._starts: list[Start] = []

    def run(self, until: float = inf) -> Report:
        """Play the load to its end, or to `until` seconds."""
        while (moment := self._next_moment()) <= ORIGIN + until * 1000.0 and moment < inf:
            self.now = int(moment)
            self.audit.measure(self.seconds)
            self._end_tasks()
            self._start_tasks()
            self._admit_tasks()
            self._start_tasks()
            self.audit.measure(self.seconds)
        return self._report()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return (self.now - ORIGIN) / 1000.0

    def charged(self, own: float, seconds: float, weight: float) -> float:
        """The standing after a task of so many seconds."""
        return standing.charge(own, seconds, weight, self.now / 1000.0, self.share.half_life)

    def lifted(self, own: float, level: float | None) -> float:
        """The standing of a newcomer."""
        return standing.lift(own, level, self.now / 1000.0, self.share.half_life)

    def level(self) -> float | None:
        """Where those are who compete now."""
        everybody = self._members.values()
        waiting = (m.standing for m in everybody if m.running is None and m.waiting)
        running = (m.standing for m in everybody if m.running and not m.running.job.express)
        return standing.level(min(waiting, default=None), max(running, default=None))

    def _next_moment(self) -> float:
        arrival = ORIGIN + round(self._coming[0][1].arrives * 1000.0) if self._coming else inf
        return min(arrival, self._ends[0][0] if self._ends else inf)

    def _end_tasks(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            member = self._members[heappop(self._ends)[1]]
            self._end_task(member)

    def _end_task(self, member: _Member) -> None:
        if member.running is None:
            raise AssertionError(member.user)
        job, member.running = member.running.job, None
        line, seconds = member.lines[job.project], _milliseconds(job) / 1000.0
        line.running = False
        member.standing = self.charged(member.standing, seconds, member.weight)
        line.standing = self.charged(line.standing, seconds, line.weight)
        self.audit.end(member.user, self.seconds, leaves=not member.waiting)

    def _admit_tasks(self) -> None:
        while self._coming and ORIGIN + round(self._coming[0][1].arrives * 1000.0) <= self.now:
            self._admit_task(*self._coming.popleft())

    def _admit_task(self, seq: int, job: Job) -> None:
        member = self._join(job.user)
        line = self._join_line(member, job.project)
        head = Head(task_id=f"t{seq}", rank=job.rank, place=seq, since=self.now, express=job.express)
        line.queues.setdefault((job.express, job.rank), deque()).append(_Queued(job, head))

    def _join(self, user: str) -> _Member:
        weight = self.share.weights.get(user, 1.0)
        member = self._members.setdefault(user, _Member(user=user, weight=weight))
        if member.running is None and not member.waiting:
            member.standing = self.lifted(member.standing, self.level())
            self.audit.join(user, weight, self.seconds)
        return member

    def _join_line(self, member: _Member, project: str) -> _Line:
        weight = self.share.project_weights.get(project, 1.0)
        line = member.lines.setdefault(project, _Line(project=project, weight=weight))
        if not (line.waiting or line.running):
            waiting = (other.standing for other in member.lines.values() if other.waiting)
            running = (other.standing for other in member.lines.values() if other.running)
            level = standing.level(min(waiting, default=None), max(running, default=None))
            line.standing = self.lifted(line.standing, level)
        return line

    def _start_tasks(self) -> None:
        free = self.slots - len(self._ends)
        if free <= 0:
            return
        waiting = tuple(m.candidate() for m in self._members.values() if m.running is None and m.waiting)
        snapshot = Snapshot(now=self.now, free_slots=free, ageing=self.share.ageing, candidates=waiting)
        for pick in decide(snapshot).picks:
            self._start_task(pick)

    def _start_task(self, pick: Pick) -> None:
        member = self._members[pick.user]
        line = member.lines[pick.project]
        queue = next(q for q in line.queues.values() if q and q[0].head.task_id == pick.task_id)
        self._note_start(pick, queue[0])
        member.running, line.running = queue.popleft(), True
        heappush(self._ends, (self.now + _milliseconds(member.running.job), pick.user))
        self.audit.start(pick.user, self.seconds)

    def _note_start(self, pick: Pick, queued: _Queued) -> None:
        accounts = self.audit.accounts
        start = Start(
            at=self.seconds,
            task_id=pick.task_id,
            user=pick.user,
            project=pick.project,
            rank=queued.job.rank,
            waited=(self.now - queued.head.since) / 1000.0,
            length=_milliseconds(queued.job) / 1000.0,
            usage={user: self.audit.usage(account, self.seconds) for user, account in accounts.items()},
        )
        self._starts.append(start)

    def _report(self) -> Report:
        users = tuple(self._user_report(user) for user in sorted(self._members))
        return Report(seconds=self.seconds, starts=tuple(self._starts), users=users, drift=self.audit.drift)

    def _user_report(self, user: str) -> UserReport:
        starts = [start for start in self._starts if start.user == user]
        served = [min(start.length, self.seconds - start.at) for start in starts]
        waits = [start.waited for start in starts]
        return UserReport(
            user=user,
            tasks=len(starts),
            service=sum(served),
            longest=max(served, default=0.0),
            mean_wait=sum(waits) / max(1, len(waits)),
            max_wait=max(waits, default=0.0),
        )


def _milliseconds(job: Job) -> int:
    """No task takes no time."""
    return max(1, round(job.length * 1000.0))
