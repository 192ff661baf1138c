"""The third proof: services of a shared host are restarted and killed, again and again, under a load of agents.

A witness outside of the product judges: every agent writes into its user's home that it begins and that it ends. None
may be missing, none may begin twice, and none may have been ended by anybody.
"""

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from tests.support.booted.host import Host, boot
from tests.support.booted.site import SPOOL, Site
from tests.support.patience import eventually

SERVICES = ("conductor", "porter", "daemon", "watchdog", "api")
HOWS = ("restart", "kill")
USERS = ("ann", "ben", "cora", "dan")
#: All must be known again within so many seconds.
SOON = 5.0
_AGENT = 'echo "$FAIRLEAD_TASK_ID" >> ~/begun; sleep {seconds}; echo "$FAIRLEAD_TASK_ID" >> ~/done'
#: Tasks that wait for each user, so that the next one starts while something is being killed.
_BATCH = 20


class Settings(NamedTuple):
    """How often each service is restarted, and killed."""

    rounds: int
    seed: int


class Outcome(NamedTuple):
    """What came of it."""

    done: Counter[str]
    #: How long each took to be at work again, the longest first.
    slowest: list[tuple[float, str]]
    tasks: int
    begun: Counter[str]
    ended: Counter[str]
    statuses: Counter[str]
    left: list[str]

    @property
    def doubled(self) -> list[str]:
        """Tasks whose agent began more than once."""
        return [task for task, count in self.begun.items() if count > 1]

    @property
    def killed(self) -> list[str]:
        """Tasks whose agent began and did not come to its end."""
        return sorted(self.begun.keys() - self.ended.keys())

    @property
    def passed(self) -> bool:
        """Whether the proof stands."""
        is_whole = len(self.begun) == self.tasks and set(self.statuses) == {"completed"}
        is_soon = not self.slowest or self.slowest[0][0] <= SOON
        return is_whole and is_soon and not (self.doubled or self.killed or self.left)


def prove_services(settings: Settings, say: Callable[[str], None]) -> Outcome:
    """Restart and kill every service that often, then let everything come to its end."""
    with closing(boot()) as host:
        site = Site(host, *USERS, slots={"max": len(USERS)})
        load = _Load(site, random.Random(settings.seed))
        done: Counter[str] = Counter()
        took: list[tuple[float, str]] = []
        for number, service, how in _deeds(settings.rounds):
            load.keep_up()
            took.append((_disturb(site, service, how), f"{how} {service}"))
            done[f"{how} {service}"] += 1
            if service == SERVICES[-1] and how == HOWS[-1]:
                say(f"round {number + 1} of {settings.rounds}: {load.tasks} tasks so far, slowest {max(took)[0]:.2f} s")
        return _outcome(site, load.tasks, done, sorted(took, reverse=True))


def _deeds(rounds: int) -> Iterator[tuple[int, str, str]]:
    yield from itertools.product(range(rounds), SERVICES, HOWS)


class _Load:
    """Users who always have something to do."""

    def __init__(self, site: Site, random: random.Random) -> None:
        self.site = site
        self.random = random
        self.given: Counter[str] = Counter()

    @property
    def tasks(self) -> int:
        """How many were dropped."""
        return self.given.total()

    def keep_up(self) -> None:
        """Give those more to do who have little left."""
        for user in USERS:
            if self.given[user] - _witness(self.site.host, user, "done").total() < _BATCH // 2:
                self._drop(user)

    def _drop(self, user: str) -> None:
        seconds = f"{self.random.uniform(0.1, 1.5):.2f}"
        prompt = _AGENT.format(seconds=seconds)
        write = 'printf "prompt: |\\n  %s\\n" "$3" >"$1/.$4.$i" && mv "$1/.$4.$i" "$1/$4.$i.yaml"'
        script = f'for i in $(seq "$2"); do {write}; done'
        name = f"{user}-{self.given[user]}"
        self.site.host.run("sh", "-c", script, "sh", f"{SPOOL}/{user}", _BATCH, prompt, name, user=user)
        self.given[user] += _BATCH


def _disturb(site: Site, service: str, how: str) -> float:
    """Restart or kill a service, and wait until it is at work again; how long that took."""
    before, begin = site.pid(service), time.monotonic()
    if how == "restart":
        site.host.systemctl("restart", f"fairlead-{service}.service")
    elif before:
        site.host.direct("kill", "-KILL", before)
    if service == "api" and not site.is_up("api"):
        site.host.systemctl("start", "fairlead-api.service")
    eventually(lambda: site.is_up(service) and site.pid(service) not in (0, before), f"{service} does not come back")
    return time.monotonic() - begin


def _witness(host: Host, user: str, name: str) -> Counter[str]:
    with suppress(FileNotFoundError):
        return Counter(host.path(f"/home/{user}/{name}").read_text().split())
    return Counter()


def _outcome(site: Site, tasks: int, done: Counter[str], took: list[tuple[float, str]]) -> Outcome:
    eventually(lambda: len(site.records()) >= tasks, "the queue does not become empty", 600)
    with suppress(AssertionError):
        site.wait_tidy()
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for user in USERS:
        begun += _witness(site.host, user, "begun")
        ended += _witness(site.host, user, "done")
    statuses = Counter(str(record["status"]) for record in site.records())
    return Outcome(done, took, tasks, begun, ended, statuses, site.left())
