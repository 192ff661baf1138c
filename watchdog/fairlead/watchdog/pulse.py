"""The pulse of running attempts: a heartbeat counts when it is seen to change, not by the time in it."""

import math

from msgspec import Struct

from fairlead.conductor.meta import Meta
from fairlead.conductor.orders import Launch

#: A supervisor that is alive ends its run by itself; only this long after that is it done for it.
MARGIN = 30.0
#: A look that comes so much later than it should says that the machine slept, or this process did not run.
GAP = 10.0


class Pulse(Struct):
    """What was seen of one attempt, by the clock that does not jump."""

    first_seen: float
    #: The last sign of life: the heartbeat's number, and when meta.json was touched.
    sign: tuple[int, int] = (-1, 0)
    changed: float = 0.0
    #: When even a run with a pulse must be over; None until its task.json was read.
    hard_stop: float | None = None
    #: When a run that somebody cancelled must be over: its supervisor was asked, and may not be able to hear.
    obey_by: float = math.inf

    def shift(self, seconds: float) -> None:
        """Do not count so many seconds."""
        self.first_seen += seconds
        self.changed += seconds
        self.obey_by += seconds
        if self.hard_stop is not None:
            self.hard_stop += seconds


class Pulses:
    """The pulses of all attempts, by token."""

    def __init__(self) -> None:
        self._pulses: dict[int, Pulse] = {}
        self._last_look: float | None = None

    def begin_look(self, now: float, interval: float) -> None:
        """Leave out time in which nobody looked: while the machine sleeps, runs cannot beat either."""
        gap = 0.0 if self._last_look is None else now - self._last_look - interval
        self._last_look = now
        if gap > GAP:
            for pulse in self._pulses.values():
                pulse.shift(gap)

    def of(self, token: int, now: float) -> Pulse:
        """What is known of an attempt; it begins with the first look."""
        return self._pulses.setdefault(token, Pulse(first_seen=now, changed=now))

    def keep_only(self, tokens: set[int]) -> None:
        """Forget attempts that are over."""
        self._pulses = {token: pulse for token, pulse in self._pulses.items() if token in tokens}


def feel(pulse: Pulse, sign: tuple[int, int], now: float) -> bool:
    """Note the sign of life; whether it has changed since the last look."""
    if sign == pulse.sign:
        return False
    pulse.sign, pulse.changed = sign, now
    return True


def hard_stop(meta: Meta, launch: Launch) -> float:
    """When the supervisor must have ended the run by itself, if it works at all."""
    if not launch.timeout:
        return float("inf")
    return (meta.started_boot or meta.claimed_boot) + launch.timeout + launch.grace + MARGIN


def is_silent(pulse: Pulse, now: float, lease: float) -> bool:
    """Whether the lease has run out without a sign of life."""
    return now - pulse.changed > lease
