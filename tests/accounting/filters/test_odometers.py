"""Odometers hold at every stop that may be chosen from the outcomes, and an accountant's running ε does not.

Randomised response is run again and again. The best moment to stop is computed exactly, by backward induction over (how
often it ran, how often it gave the likelier outcome), and so is the probability of ever passing a reading.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy.stats import binom

from dpassay.accounting import GDP, RDP, ZCDP, ApproxDP, ExPostDP, PureDP, Rigor, Unit, accountant
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import ExPostSelectionDpEvent
from dpassay.accounting.filters.adaptive import (
    ALL_ORDERS,
    WHOLE_ORDERS,
    BudgetExhausted,
    Spend,
    equal_weights,
    simultaneous_epsilon,
    stopped_epsilon,
)
from dpassay.accounting.filters.filter import Filter
from dpassay.accounting.filters.odometer import Odometer

RUNS = 400
# Backward induction adds two products a run, each with relative error 2^-52.
EXACT = 1 + RUNS * 1e-15


def best_stop(epsilon: float, readings: Sequence[float]) -> float:
    """The largest E_Q[max(L − e^reading, 0)] over all stopping times, of that many runs of ε-randomised response."""
    likelier = 1 / (1 + math.exp(epsilon))  # the probability under Q of the outcome that is likelier under P
    value: np.ndarray | None = None
    for n in range(len(readings) - 1, -1, -1):
        ratio = np.exp(epsilon * (2 * np.arange(n + 1) - n))
        stop = np.maximum(ratio - math.exp(readings[n]), 0.0)
        value = stop if value is None else np.maximum(stop, likelier * value[1:] + (1 - likelier) * value[:-1])
    assert value is not None
    return float(value[0])


def ever_passed(epsilon: float, readings: Sequence[float]) -> float:
    """The probability under P that the log-likelihood ratio is ever above the reading at the same time."""
    likelier = 1 / (1 + math.exp(-epsilon))
    weights, passed = np.ones(1), 0.0
    for n, reading in enumerate(readings):
        above = epsilon * (2 * np.arange(n + 1) - n) > reading
        passed += float(weights[above].sum())
        weights = np.where(above, 0.0, weights)
        weights = np.append(0.0, likelier * weights) + np.append((1 - likelier) * weights, 0.0)
    return passed


def readings_of(odometer: Odometer, spend: Spend, *, simultaneous: bool = False) -> list[float]:
    readings = [0.0]
    for _ in range(RUNS):
        odometer.charge(spend)
        readings.append(odometer.epsilon(simultaneous=simultaneous).value)
    return readings


@functools.cache
def accountant_readings(epsilon: float, delta: float) -> list[float]:
    item = dp_event.ZCDpEvent(epsilon**2 / 2)
    empty = accountant("zcdp", "replace_one")
    return [0.0, *(empty.compose(item, n).epsilon(delta).value for n in range(1, RUNS + 1))]


@functools.cache
def exact_readings(epsilon: float, delta: float) -> list[float]:
    """ε(δ) of n runs, n fixed in advance, to 1e-12."""
    readings = [0.0]
    for n in range(1, RUNS + 1):
        k, likelier = np.arange(n + 1), 1 / (1 + math.exp(-epsilon))
        p, q = binom.pmf(k, n, likelier), binom.pmf(k, n, 1 - likelier)
        low, high = 0.0, n * epsilon
        while high - low > 1e-12 * max(1.0, high):
            middle = (low + high) / 2
            low, high = (low, middle) if np.maximum(p - math.exp(middle) * q, 0).sum() <= delta else (middle, high)
        readings.append(high)
    return readings


ODOMETERS: dict[str, dict[str, object]] = {
    "zcdp": {"method": "zcdp"},
    "rdp": {},
    "one order": {"orders": 6},
    "two orders": {"method": "zcdp", "orders": (3.0, 9.0)},
    "basic": {"method": "basic"},
}


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.05), (0.3, 1e-3)])
def test_a_stop_chosen_from_the_outcomes_beats_an_accountant(epsilon: float, delta: float) -> None:
    """The harness can fail: a running ε(δ) that is right at every time fixed in advance is passed by waiting."""
    assert best_stop(epsilon, accountant_readings(epsilon, delta)) > 1.15 * delta
    assert best_stop(epsilon, exact_readings(epsilon, delta)) > 2.7 * delta


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.05), (0.3, 1e-3)])
@pytest.mark.parametrize("name", ODOMETERS)
def test_no_stop_beats_an_odometer(name: str, epsilon: float, delta: float) -> None:
    odometer = Odometer(delta, adjacency="replace_one", **ODOMETERS[name])  # type: ignore[arg-type]
    worst = best_stop(epsilon, readings_of(odometer, PureDP(epsilon)))
    assert worst <= delta * EXACT
    if name == "one order":
        assert worst > 0.97 * delta  # and nothing is given away


@pytest.mark.grid
@pytest.mark.parametrize("name", ["zcdp", "rdp", "one order", "two orders"])
def test_looking_back_needs_the_simultaneous_reading(name: str) -> None:
    def make() -> Odometer:
        return Odometer(0.05, adjacency="replace_one", **ODOMETERS[name])  # type: ignore[arg-type]

    stopped = readings_of(make(), PureDP(0.1))
    simultaneous = readings_of(make(), PureDP(0.1), simultaneous=True)
    assert all(a <= b for a, b in zip(stopped, simultaneous, strict=True))
    assert ever_passed(0.1, simultaneous) <= 0.05 * EXACT
    assert ever_passed(0.1, stopped) > 0.1


def test_no_adversary_beats_an_odometer() -> None:
    """Responses and a step that may tell all, picked from the outcomes: the best way to pick and to stop."""
    delta, kept = 0.05, 0.01
    costs: list[Spend] = [PureDP(0.9), PureDP(0.4), ApproxDP(0.5, 0.004)]
    sizes, leaks = (0.9, 0.4, 0.5), (0.0, 0.0, 0.004)

    @functools.cache
    def reading(counts: tuple[int, ...]) -> float:
        spends = [cost for cost, count in zip(costs, counts, strict=True) for _ in range(count)]
        odometer = Odometer.replay(spends, delta, adjacency="replace_one", method="zcdp", step_delta=kept)
        return odometer.epsilon().value

    def best(read: Callable[[tuple[int, ...]], float]) -> float:
        @functools.cache
        def value(counts: tuple[int, ...], ups: tuple[int, ...]) -> float:
            loss = sum(size * (2 * up - count) for size, up, count in zip(sizes, ups, counts, strict=True))
            result = max(math.exp(loss) - math.exp(read(counts)), 0.0)
            for index, (size, leak) in enumerate(zip(sizes, leaks, strict=True)):
                if sum(counts) == 7 or counts[2] * leak + leak > kept:
                    continue
                after = tuple(count + (position == index) for position, count in enumerate(counts))
                up = tuple(count + (position == index) for position, count in enumerate(ups))
                likelier = 1 / (1 + math.exp(size))
                told = leak * math.exp(loss)
                result = max(
                    result, told + (1 - leak) * (likelier * value(after, up) + (1 - likelier) * value(after, ups))
                )
            return result

        return value((0,) * 3, (0,) * 3)

    assert kept * 0.5 < best(reading) <= delta * EXACT

    def naive(counts: tuple[int, ...]) -> float:
        rho = sum(count * size**2 / 2 for count, size in zip(counts, sizes, strict=True))
        return formulas.epsilon_from_zcdp(rho, delta - kept) - 0.9

    assert best(naive) > delta  # a reading that is too small by less than the largest step is caught


# The formulas


def mixture(orders: Sequence[float], divergences: Sequence[float], delta: float) -> mpmath.mpf:
    """log max_L [L − δ/n Σ e^{−(α−1)S(α)} L^α], to 40 digits."""
    with mpmath.workdps(60):
        terms = [
            (mpmath.mpf(order), mpmath.mpf(delta) / len(orders) * mpmath.exp(-(mpmath.mpf(order) - 1) * mpmath.mpf(s)))
            for order, s in zip(orders, divergences, strict=True)
        ]

        def slope(log_ratio: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(sum(a * k * mpmath.exp((a - 1) * log_ratio) for a, k in terms))

        low, high = mpmath.mpf(-2000), mpmath.mpf(20000)
        for _ in range(220):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        peak = mpmath.exp(low)
        return mpmath.log(peak - sum(k * peak**a for a, k in terms))


@pytest.mark.grid("orders", "delta", "rho")
@pytest.mark.parametrize("orders", [WHOLE_ORDERS, ALL_ORDERS, (2.0,), (1.0625, 700.5)])
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-30])
@pytest.mark.parametrize("rho", [1e-5, 0.02, 1.0, 70.0])
def test_the_reading_is_the_maximum_rounded_up(orders: tuple[float, ...], delta: float, rho: float) -> None:
    bumps = 1 + 0.1 * np.sin(np.arange(len(orders)))
    divergences = rho * np.array(orders) * bumps
    weights = equal_weights(np.array(orders))
    reading = stopped_epsilon(np.array(orders), weights, divergences, delta)
    exact = max(mixture(orders, divergences.tolist(), delta), mpmath.mpf(0))
    # The error of the shares counts squared, 1e-18; what is charged for rounding is below 2e-13 of the terms' parts.
    size = float(divergences.max()) if len(orders) < 3 else float(exact)
    assert exact <= reading <= float(exact) + 2e-13 * (1 + size + 30 * abs(math.log(delta)))


@given(
    st.lists(st.floats(0, 30), min_size=len(ALL_ORDERS), max_size=len(ALL_ORDERS)),
    st.floats(1e-12, 0.5),
)
@examples(20, 60, derandomize=True)
def test_a_mixture_reads_at_most_what_a_union_over_filters_reads(raw: list[float], delta: float) -> None:
    """Each order with its share of δ, and the least of all (Rogers et al. 2016; Lécuyer 2021)."""
    orders, divergences = np.array(ALL_ORDERS), np.array(raw)
    weights = equal_weights(orders)
    with np.errstate(all="ignore"):
        union = min(
            stopped_epsilon(orders[[i]], np.ones(1), divergences[[i]], delta * weights[i]) for i in range(len(orders))
        )
    reading = stopped_epsilon(orders, weights, divergences, delta)
    assert reading <= union + 1e-12 * (1 + union)
    assert reading <= simultaneous_epsilon(orders, weights, divergences, delta)


def test_one_order_reads_its_conversion() -> None:
    for order in (1.125, 2.0, 17.0, 900.0):
        for total in (0.01, 0.7, 40.0):
            item = np.array([order]), np.ones(1), np.array([total])
            expected = float(formulas.epsilon_from_rdp(order, total, 1e-6))
            assert stopped_epsilon(*item, 1e-6) == pytest.approx(
                expected, rel=1e-12
            )  # both round up by less than 1e-13


@pytest.mark.parametrize("rho", [1e-5, 0.02, 1.0, 70.0])
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-30])
def test_the_simultaneous_reading_reaches_its_level(rho: float, delta: float) -> None:
    orders = np.array(ALL_ORDERS)
    weights, divergences = equal_weights(orders), rho * orders
    reading = simultaneous_epsilon(orders, weights, divergences, delta)
    with mpmath.workdps(50):

        def level(epsilon: float) -> mpmath.mpf:
            return sum(
                mpmath.mpf(float(w))
                * mpmath.exp((mpmath.mpf(float(a)) - 1) * (mpmath.mpf(epsilon) - mpmath.mpf(float(s))))
                for a, w, s in zip(orders, weights, divergences, strict=True)
            ) * mpmath.mpf(delta)

        assert level(reading) >= 1
        assert level(reading * (1 - 1e-9) - 1e-10) < 1


def test_weights_sum_to_at_most_one() -> None:
    from fractions import Fraction

    for count in range(1, 60):
        weights = equal_weights(np.arange(2.0, 2.0 + count))
        assert 1 - Fraction(1, 10**12) < sum(map(Fraction, weights.tolist())) <= 1


@pytest.mark.parametrize(
    ("rho", "loss"),
    [(1e-3, 1.195), (1e-2, 1.17), (0.1, 1.15), (1.0, 1.125), (10.0, 1.09), (100.0, 1.055)],
)
def test_the_loss_against_a_filter_is_what_the_guide_says(rho: float, loss: float) -> None:
    """At δ = 1e-5: at most 20 % more ε than the filter of the best order, tuned in advance to the final ρ."""
    odometer = Odometer.replay([ZCDP(rho)], 1e-5, adjacency="add_remove", method="zcdp")
    ratio = odometer.epsilon().value / formulas.epsilon_from_zcdp(rho, 1e-5)
    assert loss - 0.01 < ratio < loss


# The face


def test_a_filter_of_one_order_reads_what_its_odometer_reads() -> None:
    spends: list[Spend] = [dp_event.GaussianDpEvent(3.0), ZCDP(0.02), PureDP(0.2)]
    for method, order in (("rdp", 7.0), ("zcdp", 5.5)):
        guard = Filter.replay(spends, ApproxDP(9, 1e-5), adjacency="add_remove", method=method, orders=order)
        odometer = Odometer.replay(spends, 1e-5, adjacency="add_remove", method=method, orders=order)
        assert guard.spent() == odometer.epsilon()


def test_an_additive_part_of_zcdp_counts() -> None:
    odometer = Odometer(1e-6, adjacency="add_remove", method="zcdp", orders=5)
    odometer.charge(dp_event.ZCDpEvent(0.125, 0.25))
    expected = float(formulas.epsilon_from_rdp(5.0, 0.25 + 5 * 0.125, 1e-6))
    assert odometer.epsilon().value == pytest.approx(expected, rel=1e-12)  # both round up by less than 1e-13


def test_a_reading_is_a_bound_with_its_meaning() -> None:
    odometer = Odometer(1e-5, adjacency="zero_out", unit=Unit("user"), method="zcdp")
    assert odometer.epsilon().value == 0
    odometer.charge(dp_event.GaussianDpEvent(2.0))
    bound = odometer.epsilon()
    assert (bound.quantity, bound.delta, bound.adjacency, bound.method) == ("epsilon", 1e-5, "zero_out", "zcdp")
    assert bound.rigor is Rigor.CERTIFIED
    assert bound.unit == Unit("user")
    assert any("released outputs only" in line for line in bound.assumptions)
    assert any("all records of a user" in line for line in bound.assumptions)


def test_readings_only_grow() -> None:
    odometer = Odometer(1e-5, adjacency="replace_one")
    last = 0.0
    for spend in (PureDP(0.1), dp_event.NoOpDpEvent(), dp_event.GaussianDpEvent(9.0), ZCDP(0), GDP(0.1), RDP(30, 0.01)):
        odometer.charge(spend)
        value = odometer.epsilon().value
        assert value == last if spend in (dp_event.NoOpDpEvent(), ZCDP(0)) else value > last
        last = value
    odometer.charge(dp_event.NonPrivateDpEvent())
    assert odometer.epsilon().value == odometer.epsilon(simultaneous=True).value == math.inf


def test_pure_steps_never_read_more_than_their_sum() -> None:
    odometer = Odometer(1e-9, adjacency="replace_one")
    for n in range(1, 5):
        odometer.charge(PureDP(0.25))
        assert odometer.epsilon().value == odometer.epsilon(simultaneous=True).value == n / 4
    basic = Odometer.replay([PureDP(0.25), ExPostSelectionDpEvent(0.5)], 0.0, adjacency="add_remove", method="basic")
    assert basic.epsilon().value == 0.75
    assert basic.epsilon().delta is None


def test_deltas_of_steps_have_a_budget() -> None:
    odometer = Odometer(1e-5, adjacency="replace_one", step_delta=2e-6)
    odometer.charge(ApproxDP(0.5, 2e-6))
    before = odometer.epsilon().value
    with pytest.raises(BudgetExhausted, match="above step_delta"):
        odometer.charge(ApproxDP(0.5, 1e-12))
    assert odometer.epsilon().value == before
    with pytest.raises(ValueError, match="step is unbounded; use simultaneous"):
        odometer.epsilon(simultaneous=True)


def test_bad_arguments_are_refused_in_one_line() -> None:
    cases: list[tuple[str, Callable[[], object]]] = [
        ("delta must be strictly", lambda: Odometer(0.0, adjacency="add_remove")),
        ("delta must be between", lambda: Odometer(1.5, adjacency="add_remove", method="basic")),
        ("method must be one of", lambda: Odometer(0.1, adjacency="add_remove", method="gdp")),
        ("step_delta must be below", lambda: Odometer(0.1, adjacency="add_remove", step_delta=0.1)),
        ("realised, ex-post cost", lambda: Odometer(0.1, adjacency="add_remove").charge(ExPostDP(0.1))),
        ("records or users", lambda: Odometer(0.1, adjacency="add_remove", unit=Unit("secret"))),
    ]
    for match, act in cases:
        with pytest.raises(ValueError, match=match) as caught:
            act()
        assert "\n" not in str(caught.value)


def test_an_odometer_is_not_copied() -> None:
    with pytest.raises(TypeError, match="replay"):
        copy.copy(Odometer(0.1, adjacency="add_remove"))
