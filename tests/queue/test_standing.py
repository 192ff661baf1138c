"""Standings: the arithmetic of fair share."""

from math import expm1, inf, isclose, isfinite, log

from hypothesis import given
from hypothesis import strategies as st
from tests.queue.usage import usage

from fairlead.queue.standing import LEAST, charge, faded, floor, level, lift, rebase, reweigh

NOW = 1.8e9
HALF_LIVES = st.sampled_from([0.0, 60.0, 3600.0, 14400.0, 31_536_000.0])
SECONDS = st.floats(0.001, 1e6)
WEIGHTS = st.floats(0.01, 100.0)


def decay(seconds: float, half_life: float) -> float:
    return 0.5 ** (seconds / half_life) if half_life else 1.0


def worth(seconds: float, half_life: float) -> float:
    """What is left of a hold at its end: the integral of the decay over its length."""
    memory = half_life / log(2.0)
    # Not 1 - decay: of a millisecond in a year's half-life that would keep five digits.
    return memory * -expm1(-seconds / memory) if half_life else seconds


@given(st.lists(st.tuples(SECONDS, st.floats(0.0, 1e5)), min_size=1, max_size=30), WEIGHTS, HALF_LIVES)
def test_charges_add_up(charges: list[tuple[float, float]], weight: float, half_life: float) -> None:
    """A standing holds what plain sums of decayed seconds hold."""
    t, expected = NOW, LEAST * weight
    standing = floor(t, half_life)
    for seconds, pause in charges:
        t += pause
        expected = expected * decay(pause, half_life) + worth(seconds, half_life)
        standing = charge(standing, seconds, weight, t, half_life)
        assert isclose(usage(standing, weight, t, half_life), expected, rel_tol=1e-6)


@given(st.floats(-50.0, 50.0), st.floats(-50.0, 50.0), st.floats(0.0, 1e9), HALF_LIVES)
def test_order_does_not_change_by_waiting(a: float, b: float, pause: float, half_life: float) -> None:
    """Whoever has had less still has had less later, whatever decays meanwhile."""
    low, high = sorted((a, b))
    base = NOW / half_life if half_life else 0.0
    later = NOW + pause
    assert usage(base + low, 1.0, later, half_life) <= usage(base + high, 1.0, later, half_life)


@given(st.floats(-1e9, 1e9), st.floats(5e-324, 1e300), st.floats(1e-300, 1e300), st.floats(0.0, 1e12))
def test_no_size_overflows(standing: float, seconds: float, weight: float, t: float) -> None:
    """Tiny and huge usages, weights and times give a finite standing that never falls."""
    for half_life in (0.0, 60.0):
        charged = charge(standing, seconds, weight, t, half_life)
        assert isfinite(charged)
        assert charged >= standing
        assert usage(charged, 1.0, t, half_life) < inf


def test_a_millisecond_is_never_lost() -> None:
    """The busiest possible user still moves with a charge of one millisecond, at any half-life."""
    for half_life in (60.0, 14400.0, 31_536_000.0):
        busiest = charge(None, 100.0 * half_life, 1.0, NOW, half_life)
        assert charge(busiest, 0.001, 1.0, NOW, half_life) > busiest


def test_a_half_life_halves() -> None:
    """After one half-life a minute counts half a minute, but for what faded while it was used."""
    standing = charge(None, 60.0, 1.0, NOW, 14400.0)
    assert isclose(usage(standing, 1.0, NOW + 14400.0, 14400.0), 30.0, rel_tol=2e-3)


@given(SECONDS, SECONDS, WEIGHTS, HALF_LIVES)
def test_one_long_task_costs_what_two_short_ones_cost(a: float, b: float, weight: float, half_life: float) -> None:
    """Cutting work into pieces neither helps nor hurts."""
    one = charge(None, a + b, weight, NOW, half_life)
    two = charge(charge(None, a, weight, NOW - b, half_life), b, weight, NOW, half_life)
    assert isclose(
        usage(one, weight, NOW, half_life),
        usage(two, weight, NOW, half_life),
        rel_tol=1e-3,
        abs_tol=0.002 * weight,
    )


def test_nobody_owes_more_than_the_machine_remembers() -> None:
    """A task of a year leaves 1.44 half-lives, as any full use of a slot does."""
    standing = charge(None, 31_536_000.0, 1.0, NOW, 3600.0)
    assert isclose(usage(standing, 1.0, NOW, 3600.0), 3600.0 / log(2.0), rel_tol=1e-6)


def test_a_cost_fades_over_the_time_in_which_it_arose() -> None:
    """A cost is charged in its own unit, less what faded during the run."""
    standing = charge(None, 5.0, 1.0, NOW, 3600.0, over=3600.0)
    assert isclose(usage(standing, 1.0, NOW, 3600.0), 5.0 * faded(3600.0, 3600.0) + LEAST, rel_tol=1e-6)
    assert isclose(usage(charge(None, 5.0, 1.0, NOW, 3600.0, over=0.0), 1.0, NOW, 3600.0), 5.0 + LEAST, rel_tol=1e-6)


def test_nothing_decays_without_a_half_life() -> None:
    """With half-life 0 an hour counts an hour for ever."""
    standing = charge(None, 3600.0, 1.0, NOW, 0.0)
    assert isclose(usage(standing, 1.0, NOW + 1e9, 0.0), 3600.0, rel_tol=1e-6)


def test_a_charge_of_nothing_changes_nothing() -> None:
    """A run that held no time, or whose clock was odd, costs nothing; nobody's first one leaves the floor."""
    assert charge(7.5, 0.0, 1.0, NOW, 0.0) == 7.5
    assert charge(7.5, -3.0, 1.0, NOW, 0.0) == 7.5
    assert charge(None, 0.0, 1.0, NOW, 60.0) == floor(NOW, 60.0)


def test_a_weight_of_two_counts_half() -> None:
    """Two hours with weight 2 stand where one hour with weight 1 stands."""
    assert isclose(charge(None, 7200.0, 2.0, NOW, 0.0), charge(None, 3600.0, 1.0, NOW, 0.0))


def test_the_level_is_the_larger_of_waiting_and_running() -> None:
    """A newcomer comes in with the lowest who wait, and never below a task that was started."""
    assert level(None, None) is None
    assert level(3.0, None) == 3.0
    assert level(None, 4.0) == 4.0
    assert level(3.0, 4.0) == 4.0
    assert level(5.0, 4.0) == 5.0


def test_a_newcomer_is_lifted() -> None:
    """No credit for absence: the level of the others, or the floor of an idle machine."""
    assert lift(None, 12.0, NOW, 60.0) == 12.0
    assert lift(3.0, 12.0, NOW, 60.0) == 12.0
    assert lift(None, None, NOW, 60.0) == floor(NOW, 60.0)
    assert lift(-1e9, None, NOW, 60.0) == floor(NOW, 60.0)


def test_a_debt_stays() -> None:
    """Going away and coming back does not wash off what one has had."""
    assert lift(20.0, 12.0, NOW, 0.0) == 20.0
    assert lift(20.0, None, NOW, 0.0) == 20.0


@given(SECONDS, WEIGHTS, WEIGHTS, HALF_LIVES)
def test_reweighing_keeps_the_usage(seconds: float, old: float, new: float, half_life: float) -> None:
    """A changed weight changes the share from now on, not what was used."""
    standing = charge(None, seconds, old, NOW, half_life)
    before = usage(standing, old, NOW, half_life)
    assert isclose(usage(reweigh(standing, old, new), new, NOW, half_life), before, rel_tol=1e-6)


@given(SECONDS, HALF_LIVES, HALF_LIVES)
def test_rebasing_keeps_the_usage(seconds: float, old: float, new: float) -> None:
    """A changed half-life changes how fast usage fades from now on, not what it is now."""
    standing = charge(None, seconds, 1.0, NOW, old)
    before = usage(standing, 1.0, NOW, old)
    assert isclose(usage(rebase(standing, NOW, old, new), 1.0, NOW, new), before, rel_tol=1e-6)
