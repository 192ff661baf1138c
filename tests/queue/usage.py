"""What a standing stands for, so that tests can compare it with plain sums."""

from math import exp2

#: Beyond this power of two a float overflows; only a clock set back by many half-lives gets there.
_LARGEST_POWER = 1000.0


def usage(standing: float, weight: float, t: float, half_life: float) -> float:
    """The decayed usage in seconds that a standing stands for."""
    elapsed = t / half_life if half_life > 0.0 else 0.0
    return exp2(min(standing - elapsed, _LARGEST_POWER)) * weight
