"""Fair share as a whole: the bounds of docs/fair-share.md on random histories, and what breaks them."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from fairlead.config.schema import FairShare
from fairlead.queue.simulate import Job, Report, Simulation, Source, imagine

HISTORIES = 10_000
#: The floor of a first standing (a millisecond per weight), and the last digits of floats.
EPSILON = 0.0011
HALF_LIVES = (0.0, 60.0, 600.0, 14_400.0)
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 3.0, 10.0)


class Kind(Struct, frozen=True, kw_only=True):
    """A family of histories."""

    name: str
    most_slots: int = 4
    weights: tuple[float, ...] = (1.0,)
    #: Users come at different times.
    newcomers: bool = False
    #: Users run out of tasks and come back.
    returning: bool = False


ONE_SLOT = Kind(name="one slot, any weights", most_slots=1, weights=WEIGHTS)
EQUAL = Kind(name="many slots, equal weights")
ONE_SLOT_NEWCOMERS = Kind(name="one slot, any weights, newcomers", most_slots=1, weights=WEIGHTS, newcomers=True)
EQUAL_NEWCOMERS = Kind(name="many slots, equal weights, newcomers", newcomers=True)
ANYTHING = Kind(name="many slots, any weights, comings and goings", weights=WEIGHTS, newcomers=True, returning=True)
KINDS = (ONE_SLOT, EQUAL, ONE_SLOT_NEWCOMERS, EQUAL_NEWCOMERS, ANYTHING)


class History(Struct, frozen=True, kw_only=True):
    """A load and the machine that it meets."""

    jobs: tuple[Job, ...]
    share: FairShare
    slots: int


def history(kind: Kind, seed: int, users: int, half_life: float) -> History:
    random = Random(seed)
    weights = {f"u{n}": random.choice(kind.weights) for n in range(users)}
    jobs = tuple(job for user in weights for job in some_jobs(kind, random, user))
    share = FairShare(half_life=half_life, weights=weights)
    return History(jobs=jobs, share=share, slots=random.randint(1, kind.most_slots))


def some_jobs(kind: Kind, random: Random, user: str) -> list[Job]:
    """Lengths of all sizes: equal, even and wild ones."""
    mean = random.choice((1.0, 10.0, 100.0, 600.0))
    arrives = random.choice((0.0, random.uniform(0.0, 500.0))) if kind.newcomers else 0.0
    jobs = []
    for _ in range(random.randint(1, 12)):
        length = random.choice((mean, random.uniform(0.0, 2.0 * mean), random.expovariate(1.0 / mean)))
        jobs.append(Job(user=user, length=length, arrives=arrives))
        if kind.returning and random.random() < 0.3:
            arrives += random.uniform(0.0, 10.0 * mean)
    return jobs


def play(past: History, simulation: type[Simulation] = Simulation) -> Report:
    return simulation(past.jobs, share=past.share, slots=past.slots).run()


def longest_per_weight(past: History, report: Report) -> float:
    return max(user.longest / past.share.weights.get(user.user, 1.0) for user in report.users)


def violations(kind: Kind, past: History, report: Report) -> list[str]:
    """Which of the bounds that hold for this kind of history were broken."""
    broken = []
    if report.drift.behind_excess > EPSILON:
        broken.append("behind")
    if not kind.newcomers and report.drift.spread_excess > EPSILON:
        broken.append("pairs")
    if not kind.returning and report.drift.spread > longest_per_weight(past, report) + EPSILON:
        broken.append("spread")
    return broken


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_bound_holds(kind: Kind, record_property: Callable[[str, int], None]) -> None:
    """Ten thousand random histories in all, with and without decay, stay within the documented bounds."""
    share = HISTORIES // len(KINDS)
    played: list[tuple[int, int, float]] = []

    @settings(max_examples=share, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 62), st.integers(2, 6), st.sampled_from(HALF_LIVES))
    def check(seed: int, users: int, half_life: float) -> None:
        past = history(kind, seed, users, half_life)
        assert violations(kind, past, play(past)) == []
        played.append((seed, users, half_life))

    check()
    record_property("histories", len(set(played)))
    assert len(played) >= share
    assert len(set(played)) >= 0.99 * share


class ByCount(Simulation):
    """Charges every task alike."""

    def charged(self, own: float, seconds: float, weight: float) -> float:
        del seconds
        return super().charged(own, 1.0, weight)


class Unlifted(Simulation):
    """Lets people bank credit."""

    def lifted(self, own: float, level: float | None) -> float:
        del level
        return super().lifted(own, None)


class LiftedToTheLeast(Simulation):
    """Lifts newcomers to the least standing of all who wait or run."""

    def level(self) -> float | None:
        active = [m.standing for m in self._members.values() if m.running or m.waiting]
        return min(active, default=None)


class Unweighed(Simulation):
    """Forgets the weights."""

    def charged(self, own: float, seconds: float, weight: float) -> float:
        del weight
        return super().charged(own, seconds, 1.0)


@pytest.mark.parametrize(
    ("flaw", "kind"),
    [
        (ByCount, ONE_SLOT),
        (ByCount, EQUAL),
        (Unweighed, ONE_SLOT),
        (Unlifted, ONE_SLOT_NEWCOMERS),
        (Unlifted, EQUAL_NEWCOMERS),
        (LiftedToTheLeast, EQUAL_NEWCOMERS),
    ],
)
def test_the_check_is_not_blind(flaw: type[Simulation], kind: Kind) -> None:
    """A flawed variant breaks the bound within a few of the same histories."""
    pasts = [history(kind, seed, 4, 0.0) for seed in range(100)]
    assert any(violations(kind, past, play(past, flaw)) for past in pasts)
    assert not any(violations(kind, past, play(past)) for past in pasts)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 62))
def test_projects_within_a_user_keep_the_bound(seed: int) -> None:
    """Two projects of one user, any weights, differ by one hold per weight at most, at every start."""
    random = Random(seed)
    weights = {"a": random.choice(WEIGHTS), "b": random.choice(WEIGHTS)}
    jobs = [Job(user="ann", project=project, length=random.expovariate(0.01)) for project in weights for _ in range(20)]
    report = Simulation(jobs, share=FairShare(half_life=0.0, project_weights=weights), slots=3).run()
    had, longest, left = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 20)
    for start in report.starts:
        if min(left.values()) > 0:
            bound = max(longest[project] / weights[project] for project in weights)
            assert abs(had["a"] / weights["a"] - had["b"] / weights["b"]) <= bound + EPSILON
        had[start.project] += start.length
        longest[start.project] = max(longest[start.project], start.length)
        left[start.project] -= 1


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 62))
def test_only_so_much_can_overtake(seed: int) -> None:
    """A later task of a project goes first only if it is more urgent and came within the steps' worth."""
    random = Random(seed)
    jobs = [
        Job(
            user="ann",
            length=random.uniform(1.0, 60.0),
            arrives=random.uniform(0.0, 900.0),
            rank=random.randint(0, 3),
        )
        for _ in range(40)
    ]
    ageing = 100.0
    starts = Simulation(jobs, share=FairShare(ageing=ageing), slots=1).run().starts
    order = [(start.at - start.waited, start.rank) for start in starts]
    for place, (came, rank) in enumerate(order):
        for later_came, later_rank in order[place + 1 :]:
            # An earlier arrival that starts later was overtaken: by as much as its steps allow.
            assert came <= later_came + max(0, later_rank - rank) * ageing + EPSILON


def endless_high_tasks_and_a_low_one() -> list[Job]:
    """Two tasks too many at the beginning, then as many as the machine can do."""
    high = [Job(user="ann", length=10.0, arrives=max(0.0, 10.0 * (n - 2)), rank=1) for n in range(200)]
    return [*high, Job(user="ann", length=10.0, arrives=5.0, rank=3)]


def test_low_never_starves() -> None:
    """Of an endless stream of high tasks only those of the next two steps go before a low one."""
    starts = Simulation(endless_high_tasks_and_a_low_one(), share=FairShare(ageing=300.0), slots=1).run().starts
    (waited,) = [start.waited for start in starts if start.rank == 3]
    assert 600.0 <= waited <= 600.0 + 3 * 10.0


def test_it_is_ageing_that_keeps_low_from_starving() -> None:
    """With steps longer than the stream the low task is the very last."""
    starts = Simulation(endless_high_tasks_and_a_low_one(), share=FairShare(ageing=1e6), slots=1).run().starts
    assert starts[-1].rank == 3


def test_one_priority_is_first_in_first_out() -> None:
    """Tasks of one project and priority start in the order in which they came."""
    jobs = [Job(user="ann", length=1.0, arrives=float(n % 3)) for n in range(30)]
    starts = Simulation(jobs, share=FairShare(), slots=4).run().starts
    came = [(start.at - start.waited, int(start.task_id[1:])) for start in starts]
    assert came == sorted(came)


def test_a_user_never_has_two_slots() -> None:
    """However many slots are free, a user's tasks follow one another."""
    report = play(history(ANYTHING, 7, 4, 0.0))
    free_at: dict[str, float] = {}
    for start in report.starts:
        assert start.at >= free_at.get(start.user, 0.0) - 1e-6
        free_at[start.user] = start.at + start.length


def test_ten_thousand_tasks_do_not_delay_another_user() -> None:
    """Somebody's first task starts as soon as a slot is free, whatever the others have queued."""
    flood = [Job(user="ann", length=60.0) for _ in range(10_000)]
    share = FairShare()
    one = Simulation([*flood, Job(user="bob", length=5.0, arrives=90.0)], share=share, slots=1).run(until=600.0)
    two = Simulation([*flood, Job(user="bob", length=5.0, arrives=90.0)], share=share, slots=2).run(until=600.0)
    assert [start.waited for start in one.starts if start.user == "bob"] == [30.0]
    assert [start.waited for start in two.starts if start.user == "bob"] == [0.0]


def test_a_long_task_of_somebody_else_gives_a_newcomer_no_credit() -> None:
    """Beside a task of ten hours a newcomer shares the other slot at once instead of owning it for hours."""
    jobs = [
        Job(user="long", length=36_000.0),
        *(Job(user="old", length=60.0) for _ in range(900)),
        *(Job(user="new", length=60.0, arrives=30_000.0) for _ in range(100)),
    ]

    def old_share(simulation: type[Simulation]) -> int:
        report = simulation(jobs, share=FairShare(half_life=0.0), slots=2).run(until=35_000.0)
        return sum(start.user == "old" for start in report.starts if start.at > 30_000.0)

    assert old_share(Simulation) in (41, 42)
    assert old_share(LiftedToTheLeast) <= 1


def test_an_express_task_is_charged_like_any_other() -> None:
    """Whoever is sent ahead stands behind afterwards by what that took."""
    jobs = [Job(user="ann", length=10.0) for _ in range(20)] + [Job(user="bob", length=10.0) for _ in range(20)]
    jobs.append(Job(user="bob", length=100.0, arrives=5.0, rank=0, express=True))
    starts = Simulation(jobs, share=FairShare(half_life=0.0), slots=1).run().starts
    assert starts[1].task_id == "t40"
    assert [start.user for start in starts[2:11]] == ["ann"] * 9


@pytest.mark.parametrize(("others", "half_lives"), [(1, 1.0), (3, 2.0)])
def test_a_debt_ends(others: int, half_lives: float) -> None:
    """After days alone on the machine one waits log2(k + 1) half-lives for k others, and a task."""
    jobs = [
        Job(user="ann", length=100_000.0),
        *(Job(user=f"u{n % others}", length=60.0, arrives=100_001.0) for n in range(300)),
        Job(user="ann", length=60.0, arrives=100_002.0),
    ]
    starts = Simulation(jobs, share=FairShare(half_life=3600.0), slots=1).run().starts
    wait = max(start.waited for start in starts if start.user == "ann")
    assert wait == pytest.approx(half_lives * 3600.0, abs=(others + 1) * 60.0)


def test_the_same_seed_is_the_same_day() -> None:
    """An imagined load depends on its seed alone, and so does all that follows."""
    sources = [Source(user="ann", tasks=20, length=60.0, gap=30.0), Source(user="bob", tasks=20, length=5.0)]
    share = FairShare(weights={"ann": 2.0})

    def day(seed: int) -> Report:
        return Simulation(imagine(sources, seed), share=share, slots=2).run()

    assert day(1) == day(1)
    assert day(1) != day(2)
    assert imagine(sources, 1)[:20] == imagine(sources[:1], 1)


def test_the_report_counts_what_ran() -> None:
    """Service, waits and tasks of each user, cut off where the simulation was."""
    jobs = [
        Job(user="ann", length=10.0),
        Job(user="ann", length=10.0),
        Job(user="bob", length=4.0, arrives=1.0),
    ]
    report = Simulation(jobs, share=FairShare(), slots=1).run(until=16.0)
    ann, bob = report.users
    assert (ann.tasks, ann.service, ann.longest, ann.mean_wait, ann.max_wait) == (2, 10.0, 10.0, 7.0, 14.0)
    assert (bob.tasks, bob.service, bob.max_wait) == (1, 4.0, 9.0)
    assert report.seconds == 14.0


def test_nothing_comes_of_nothing() -> None:
    """An empty load is an empty report."""
    report = Simulation([], share=FairShare(), slots=1).run()
    assert report.starts == ()
    assert report.users == ()
