"""Whom to kill, and when: a row of choices that a seed repeats."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.proof.processes import Role

#: Out of a hundred kills.
_SHARES = {
    Role.SUBMITTER: 14,
    Role.DAEMON: 16,
    Role.WATCHDOG: 16,
    Role.SPAWNER: 14,
    Role.SUPERVISOR: 20,
    Role.AGENT: 20,
}
#: Killed together with another, or again right after their restart: what is half done is done by two of them.
_TOGETHER = (Role.DAEMON, Role.WATCHDOG, Role.SPAWNER, Role.SUPERVISOR)


@dataclass(frozen=True)
class Step:
    """One kill: so long after the last one, somebody of this role."""

    pause: float
    role: Role
    #: Which of those who are there: 0 the oldest, just below 1 the newest.
    which: float
    #: Wait for the next one to be born, and let it live this long; None: take one who is there.
    newborn: float | None = None
    #: A killed service is started again after this long; what the others do meanwhile, they do alone.
    down: float = 0.0


def plan(seed: int, pause: float) -> Iterator[Step]:
    """An endless row of kills, `pause` seconds apart on the average."""
    draw = random.Random(f"kills {seed}")
    while True:
        role = draw.choices(list(_SHARES), weights=list(_SHARES.values()))[0]
        yield _step(draw, role, draw.expovariate(1 / pause))
        if role in _TOGETHER and draw.random() < 0.3:
            yield _step(draw, draw.choice(_TOGETHER), draw.uniform(0.0, 0.4))


def _step(draw: random.Random, role: Role, pause: float) -> Step:
    young = role in (Role.SUPERVISOR, Role.AGENT, Role.SUBMITTER) and draw.random() < 0.5
    return Step(
        pause=pause,
        role=role,
        which=draw.random(),
        # Most that can go wrong is in the first milliseconds of a run.
        newborn=draw.expovariate(1 / (0.08 if role is Role.SUBMITTER else 0.015)) if young else None,
        down=draw.uniform(0.1, 1.5) if draw.random() < 0.3 else 0.0,
    )
