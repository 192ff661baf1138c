"""How much a user, or a project within a user, has had: one number that orders them for good.

A standing is log2(decayed usage / weight) + t / half_life, with usage in seconds and t in wall seconds.
All usage decays by the same factor, so two standings never change their order by waiting: the store can
keep them in an index, and the smallest is next. With half_life 0 the second term is 0: nothing decays.

`t` must never go back from one call to the next, whatever the wall clock does: pass the larger of the
wall clock and the last `t`. (docs/fair-share.md says all of this in words.)
"""

from math import exp2, expm1, log, log1p, log2

#: The usage per weight, in seconds, of somebody who comes to an idle machine without a past.
LEAST = 0.001
_LN_2 = log(2.0)


def floor(t: float, half_life: float) -> float:
    """The standing of somebody without a past."""
    return log2(LEAST) + _elapsed(t, half_life)


def charge(
    standing: float | None,
    amount: float,
    weight: float,
    t: float,
    half_life: float,
    *,
    over: float | None = None,
) -> float:
    """The standing at `t`, after `amount` more has been used in the `over` seconds before it.

    The amount is seconds held, and `over` those same seconds, unless it is a cost: then `over` is the time
    in which it arose.
    """
    own = floor(t, half_life) if standing is None else standing
    if amount <= 0.0:
        return own
    worth = amount * faded(amount if over is None else over, half_life)
    # Two logarithms instead of one of the quotient: that could overflow.
    return _log2_of_sum(own, log2(worth) - log2(weight) + _elapsed(t, half_life))


def faded(over: float, half_life: float) -> float:
    """The part that is left, at the end of `over` seconds, of what was used evenly during them.

    Use fades while it happens. So one long task costs what the same time in short tasks costs, and nobody
    can owe more than the machine remembers: half_life / ln 2 seconds.
    """
    fading = _LN_2 * _elapsed(over, half_life)
    return -expm1(-fading) / fading if fading > 0.0 else 1.0


def level(lowest_waiting: float | None, highest_running: float | None) -> float | None:
    """Where the others are: what a newcomer is lifted to, None when there are no others.

    `lowest_waiting` is the smallest standing of those who wait and could start. `highest_running` is the
    largest of those whose task runs, as it was when that task started; express tasks do not count.
    Nobody who runs may be overtaken by somebody whom the decision to start him has not seen: hence the
    larger of the two, not the smallest standing of all.
    """
    if lowest_waiting is None or highest_running is None:
        return highest_running if lowest_waiting is None else lowest_waiting
    return max(lowest_waiting, highest_running)


def lift(own: float | None, active_minimum: float | None, t: float, half_life: float) -> float:
    """The standing of a newcomer: his own debt stays with him, credit does not.

    `active_minimum` is the `level` of the others. A newcomer is whoever could start now and could not
    before: the first task came in or became due, a hold or a pause ended.
    """
    least = floor(t, half_life) if active_minimum is None else active_minimum
    return least if own is None else max(own, least)


def reweigh(standing: float, old_weight: float, new_weight: float) -> float:
    """The same usage under another weight."""
    return standing + log2(old_weight) - log2(new_weight)


def rebase(standing: float, t: float, old_half_life: float, new_half_life: float) -> float:
    """The same usage under another half-life: standings of two half-lives cannot be compared."""
    return standing - _elapsed(t, old_half_life) + _elapsed(t, new_half_life)


def _elapsed(t: float, half_life: float) -> float:
    return t / half_life if half_life > 0.0 else 0.0


def _log2_of_sum(a: float, b: float) -> float:
    """log2(2**a + 2**b), for powers that no float could hold."""
    high, low = max(a, b), min(a, b)
    return high + log1p(exp2(low - high)) / _LN_2
