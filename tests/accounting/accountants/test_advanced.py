"""Advanced composition against the enumeration of all outcomes in 50 digits, and against the published closed forms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TypeAlias

import mpmath
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.accountants import advanced
from dpassay.accounting.accountants.advanced import Advanced
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, EpsilonDeltaDpEvent, ParallelDpEvent

Number: TypeAlias = mpmath.mpf


def pure(epsilon: float) -> DpEvent:
    return dp_event.LaplaceDpEvent(1 / epsilon)


def composed(*parts: tuple[float, int], unit: Unit | None = None) -> Advanced:
    chosen = Advanced("add_remove", unit)
    for epsilon, count in parts:
        chosen = chosen.compose(pure(epsilon), count)
    return chosen


def optimal_delta(epsilons: list[float], counts: list[int], at: float) -> float:
    """δ(ε) of exactly these pure ε, by the accountant."""
    chosen = Advanced("add_remove")
    for epsilon, count in zip(epsilons, counts, strict=True):
        chosen = chosen.compose(EpsilonDeltaDpEvent(epsilon), count)
    return chosen.delta(at).value


def published_forms(epsilons: list[float], counts: list[int], delta: float) -> tuple[float, float]:
    """ε(δ) by Kairouz, Oh and Viswanath (2015), Theorem 3.5, and by Dwork, Rothblum and Vadhan (2010), Theorem III.3,
    for different ε, in 50 digits."""
    with mpmath.workdps(50):
        pairs = [(Number(e), n) for e, n in zip(epsilons, counts, strict=True)]
        mean = mpmath.fsum(n * e * mpmath.tanh(e / 2) for e, n in pairs)
        square, d = mpmath.fsum(n * e**2 for e, n in pairs), Number(delta)
        kov = min(
            mpmath.fsum(n * e for e, n in pairs),
            mean + mpmath.sqrt(2 * square * mpmath.log(mpmath.e + mpmath.sqrt(square) / d)),
            mean + mpmath.sqrt(2 * square * mpmath.log(1 / d)),
        )
        drv = mpmath.fsum(n * e * mpmath.expm1(e) for e, n in pairs) + mpmath.sqrt(2 * mpmath.log(1 / d) * square)
    return float(kov), float(drv)


def enumerated(epsilons: list[float], at: float) -> Number:
    """δ(ε) of randomised responses, all 2^k outcomes one by one, from the two probabilities of each."""
    with mpmath.workdps(50):
        sides = [
            (mpmath.exp(Number(e)) / (1 + mpmath.exp(Number(e))), 1 / (1 + mpmath.exp(Number(e)))) for e in epsilons
        ]
        scale = mpmath.exp(Number(at))
        total = Number(0)
        for outcome in itertools.product((0, 1), repeat=len(epsilons)):
            p = mpmath.fprod(side[bit] for side, bit in zip(sides, outcome, strict=True))
            q = mpmath.fprod(side[1 - bit] for side, bit in zip(sides, outcome, strict=True))
            total += max(p - scale * q, Number(0))
        return total


def theorem(count: int, epsilon: float, index: int) -> tuple[float, Number]:
    """Kairouz, Oh and Viswanath (2015), Theorem 3.3 as printed: ((k − 2i)ε, δ_i)."""
    with mpmath.workdps(50):
        e = Number(epsilon)
        terms = [
            mpmath.binomial(count, j) * (mpmath.exp((count - j) * e) - mpmath.exp((count - 2 * index + j) * e))
            for j in range(index)
        ]
        return float((count - 2 * index) * e), mpmath.fsum(terms) / (1 + mpmath.exp(e)) ** count


# --- the optimum


@examples(20, 60, derandomize=True)
@given(
    epsilons=st.lists(st.sampled_from([0.0, 1e-4, 0.1, 0.5, 0.75, 2.0, 9.0]), min_size=1, max_size=7),
    share=st.floats(0, 1.05),
)
def test_the_optimum_is_the_enumeration_rounded_up(epsilons: list[float], share: float) -> None:
    """Relative error: the probabilities' (their logarithms add up to at most 250, times 32u), and that of ε and ℓ."""
    at = share * sum(epsilons)
    exact = enumerated(epsilons, at)
    got = optimal_delta(epsilons, [1] * len(epsilons), at)
    assert exact <= got
    assert got <= exact * (1 + 1e-12) + 64 * 2.0**-53 * (1 + sum(epsilons))


@pytest.mark.grid
@pytest.mark.parametrize(("count", "epsilon"), [(1, 0.3), (7, 1.5), (30, 0.1), (400, 0.05), (5000, 0.01)])
def test_equal_epsilons_give_the_published_optimum(count: int, epsilon: float) -> None:
    for index in {0, count // 5, count // 3, count // 2}:
        at, delta = theorem(count, epsilon, index)
        got = optimal_delta([epsilon], [count], at)
        assert delta <= got
        # `at` is rounded, and the losses err by 8u·kε.
        assert got <= delta * (1 + 1e-9) + 32 * 2.0**-53 * count * epsilon


def test_epsilon_is_the_inverse_of_the_optimum() -> None:
    for epsilon, count, delta in [(0.1, 50, 1e-6), (1.0, 12, 1e-9), (0.02, 2000, 1e-5)]:
        value = composed((epsilon, count)).epsilon(delta).value
        assert optimal_delta([epsilon], [count], value) <= delta
        # At a kink of the curve log δ falls by less than 200 a unit of ε here; bisection stops at 1e-13 of ε.
        assert optimal_delta([epsilon], [count], value * (1 - 1e-9)) > delta * (1 - 1e-6)
        assert value < published_forms([epsilon], [count], delta)[0]
    assert composed((0.1, 50)).epsilon(0.9).value == 0


def test_few_kinds_are_exact_and_many_are_not() -> None:
    """Three kinds against the enumeration; forty different ε have 2^40 terms and get the closed form."""
    accountant = composed((0.5, 3), (0.2, 4), (1.0, 1))
    exact = enumerated([0.5] * 3 + [0.2] * 4 + [1.0], 1.3)
    assert exact <= accountant.delta(1.3).value <= exact * (1 + 1e-12)
    different = [(0.05 + k / 1000, 1) for k in range(40)]
    many = composed(*different)
    value = many.epsilon(1e-6).value
    assert value < many.epsilon(1e-9).value < sum(epsilon for epsilon, _ in different)
    # All ε replaced by the largest, which has an optimum of its own: the closed form may not lie far above it.
    assert value < 1.2 * composed((0.089, 40)).epsilon(1e-6).value


# --- the closed forms


@examples(34, 100, derandomize=True)
@given(
    parts=st.lists(st.tuples(st.floats(1e-3, 4.0), st.integers(1, 60)), min_size=1, max_size=3),
    power=st.floats(-12, -0.5),
)
def test_the_order_of_the_bounds(parts: list[tuple[float, int]], power: float) -> None:
    """Optimum ≤ closed form ≤ Theorem 3.5 ≤ Dwork, Rothblum and Vadhan, and none below what 50 digits say of δ."""
    delta = 10.0**power
    epsilons, counts = [epsilon for epsilon, _ in parts], [count for _, count in parts]
    composition = tuple((Fraction(epsilon), count) for epsilon, count in parts)
    best = composed(*parts).epsilon(delta).value
    closed = min(
        advanced.summed(composition),
        ZeroConcentrated("add_remove")
        .compose(dp_event.ZCDpEvent(advanced.concentrated(composition)))
        .epsilon(delta)
        .value,
    )
    published, first = published_forms(epsilons, counts, delta)
    # 1/ε of a Laplace event is rounded, so its ε may differ by 2u.
    assert best <= closed * (1 + 1e-15) ** 4
    assert closed <= published * (1 + 1e-9)  # the search for the best order is good to a relative 1e-9
    assert published <= first * (1 + 1e-13)
    if advanced.terms_of(composition) <= 2**18:
        assert optimal_delta(epsilons, counts, published) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 40.0])
def test_pure_dp_is_concentrated(epsilon: float) -> None:
    """D_α of randomised response ≤ α·ε tanh(ε/2) in 60 digits, close to equality as α → 1."""
    rho = advanced.concentrated(((Fraction(epsilon), 1),))
    with mpmath.workdps(60):
        e = Number(epsilon)
        for order in (1 + Number(10) ** -6, Number("1.1"), Number(2), Number(8), Number(100)):
            tail = (mpmath.exp(order * e) + mpmath.exp((1 - order) * e)) / (1 + mpmath.exp(e))
            divergence = mpmath.log(tail) / (order - 1)
            assert divergence <= order * rho
            if order < 1.01:
                assert divergence >= rho * (1 - Number(10) ** -5)


# --- the accountant


def test_a_bound_says_what_it_is() -> None:
    bound = composed((0.1, 100)).epsilon(1e-6)
    assert (bound.method, bound.rigor, bound.delta, bound.adjacency) == (
        "advanced",
        Rigor.CERTIFIED,
        1e-6,
        Adjacency.ADD_REMOVE,
    )
    delta = composed((0.1, 100)).delta(3.0)
    assert (delta.quantity, delta.at) == ("delta", 3.0)


def test_never_above_the_sum_and_below_it_for_many() -> None:
    for epsilon, count in [(1.0, 1), (3.0, 2), (0.1, 1000)]:
        parts = Basic("add_remove").compose(pure(epsilon), count)
        assert composed((epsilon, count)).epsilon(1e-6).value <= parts.epsilon(1e-6).value
    assert composed((0.01, 10_000)).epsilon(1e-6).value < 6  # the sum is 100


def test_where_the_sum_is_reached_delta_is_zero() -> None:
    accountant = composed((0.5, 4))
    total = Basic("add_remove").compose(pure(0.5), 4).pure().value
    assert accountant.delta(total).value == 0
    assert accountant.delta(total * 0.999).value > 0
    assert Advanced("add_remove").epsilon(1e-6).value == 0
    assert Advanced("add_remove").delta(0.0).value == 0


def test_groups_multiply_each_epsilon() -> None:
    group = composed((0.1, 20), unit=Unit("group", 3))
    assert group.epsilon(1e-6).value == pytest.approx(composed((0.3, 20)).epsilon(1e-6).value, rel=1e-12)


def test_disjoint_parts_cost_the_worst_of_them() -> None:
    few, many = pure(1.0), dp_event.SelfComposedDpEvent(pure(0.1), 20)
    parts = ParallelDpEvent([few, many, few])
    item = max(Advanced("add_remove").compose(part).epsilon(1e-6).value for part in (few, many))
    assert Advanced("add_remove").compose(parts).epsilon(1e-6).value == item
    # Exchanging a unit moves it from one part to another, and a Laplace sum twice as far.
    both = dp_event.ComposedDpEvent([few, many])
    two = max(
        Advanced("replace_one").compose(each).epsilon(1e-6).value
        for each in (both, dp_event.SelfComposedDpEvent(few, 2))
    )
    assert Advanced("replace_one").compose(parts).epsilon(1e-6).value == two
    assert Advanced("replace_one").compose(ParallelDpEvent([few, many, few], True)).epsilon(1e-6).value == max(
        Advanced("replace_one").compose(part).epsilon(1e-6).value for part in (few, many)
    )


def test_many_different_parts_are_bounded_rank_by_rank() -> None:
    """Twenty parts: the largest ε of each rank costs at least as much as each part, and here as the one with most."""
    parts = [dp_event.SelfComposedDpEvent(pure(0.25), k) for k in range(1, 20)]
    wide = Advanced("add_remove").compose(ParallelDpEvent([*parts, pure(0.5)]))
    assert wide.cost == (((Fraction(0.5), 1), (Fraction(0.25), 18)),)
    assert wide.epsilon(1e-6).value == composed((0.5, 1), (0.25, 18)).epsilon(1e-6).value
    assert wide.epsilon(1e-6).value >= max(Advanced("add_remove").compose(part).epsilon(1e-6).value for part in parts)


def test_selections_count_as_pure() -> None:
    event = BoundedRangeSelectionDpEvent(0.2, 0.0)
    selections = Advanced("add_remove").compose(event, 50)
    assert selections.epsilon(1e-6).value == composed((0.2, 50)).epsilon(1e-6).value
    assert selections.epsilon(1e-6).value > ZeroConcentrated("add_remove").compose(event, 50).epsilon(1e-6).value


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(1.0),
        dp_event.ZCDpEvent(0.1),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0)),
        dp_event.RandomizedResponseDpEvent(0.5, 2),
        dp_event.UnsupportedDpEvent(),
    ],
)
def test_what_has_no_pure_epsilon_is_refused(event: DpEvent) -> None:
    reason = Advanced("add_remove").supports(event)
    assert reason is not None
    assert reason.startswith("advanced has no bound")
    with pytest.raises(ValueError, match="advanced has no bound"):
        Advanced("add_remove").compose(event)


def test_other_pure_events_are_taken_from_basic() -> None:
    sampled = dp_event.PoissonSampledDpEvent(0.1, pure(1.0))
    value = Advanced("add_remove").compose(sampled, 100).epsilon(1e-6).value
    amplified = Basic("add_remove").compose(sampled).pure().value
    assert value == pytest.approx(composed((amplified, 100)).epsilon(1e-6).value, rel=1e-12)
    response = dp_event.RandomizedResponseDpEvent(0.5, 2)
    assert Advanced("replace_one").compose(response).epsilon(1e-9).value <= math.log(3) * (1 + 1e-12)
    nothing = Advanced("add_remove").compose(dp_event.NonPrivateDpEvent())
    assert math.isinf(nothing.epsilon(1e-6).value)
    assert nothing.delta(5.0).value == 1
