"""Laws that every dominating pair obeys, over random mechanisms: intervals may be wide, they may not contradict.

`chances` draws through hypothesis, so a failure shrinks. Where two intervals are known to hold the same number they
must share a point; no tolerance is needed, since each is certified to contain its number. What is computed from an
interval here (a sum, a product) is off by a few roundings of numbers of at most 1: `ROUNDING`.
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import DIRECTIONS, Direction
from oracle_cases import FAMILIES, Case, gaussian_by_cdfs, log_uniform
from property_settings import examples

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet

ROUNDING = 2.0**-50
chances = st.randoms(use_true_random=False)
families = st.sampled_from(sorted(FAMILIES))
sides = st.sampled_from([*DIRECTIONS, None])
quick = examples(10, 25, derandomize=True)


@pytest.fixture(autouse=True)
def _width_is_not_asked_about() -> Iterator[None]:
    """Random parameters reach corners where the width is not met; the answer must hold all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        yield


def other(side: Direction) -> Direction:
    return "add" if side == "remove" else "remove"


def meet(first: Interval, second: Interval, slack: float = 0.0) -> bool:
    return max(first.lower, second.lower) <= min(first.upper, second.upper) + slack


# --- lower ≤ truth ≤ upper


def inside(result: Interval, truth: oracle.Real) -> bool:
    return bool(result.lower * (1 - oracle.ROOM) <= truth <= result.upper * (1 + oracle.ROOM))


def composed(family: str, chance: random.Random) -> Case:
    """A random mechanism, half of the time with one to three runs of a finite one beside it."""
    case = FAMILIES[family](chance)
    if chance.random() < 0.5:
        return case
    finite = FAMILIES[chance.choice(["approx_dp", "finite", "randomised_response", "discrete_laplace"])](chance)
    assert isinstance(finite.exact, oracle.Atoms)
    count = chance.randint(1, 3)
    pair = case.pair.compose(finite.pair.self_compose(count))
    return Case(f"{case.label} × {count} {finite.label}", pair, case.exact.with_atoms(finite.exact.power(count)))


questions = st.sampled_from(["epsilon", "delta", "blowup"])


@examples(80, 3000)
@given(family=families, chance=chances, side=sides, question=questions)
def test_the_truth_is_inside(family: str, chance: random.Random, side: Direction | None, question: str) -> None:
    case = composed(family, chance)
    pair, exact = case.pair, case.exact
    if question == "epsilon":
        delta = log_uniform(chance, 1e-14, 0.2)
        result = pair.epsilon(delta, direction=side)
        most, least = delta * (1 + oracle.ROOM), delta * (1 - oracle.ROOM)
        assert result.upper == math.inf or exact.delta(result.upper, side) <= most, (case.label, delta, result)
        if result.lower == math.inf:
            assert exact.epsilon(delta, side) == oracle.INFINITY, (case.label, delta, result)
        else:
            assert result.lower == 0 or exact.delta(result.lower, side) >= least, (case.label, delta, result)
    elif question == "delta" or not isinstance(exact, oracle.Line | oracle.Atoms):
        epsilon = chance.choice([-1, 1]) * log_uniform(chance, 1e-6, 20)
        result = pair.delta(epsilon, direction=side)
        assert inside(result, exact.delta(epsilon, side)), (case.label, epsilon, result)
    else:
        p = log_uniform(chance, 1e-12, 1)
        result = pair.blowup(p, direction=side)
        assert inside(result, exact.blowup(p, side)), (case.label, p, result)


# --- composition


@quick
@given(mu=st.floats(0.01, 2.0), count=st.integers(1, 6), delta=st.sampled_from([1e-2, 1e-6, 1e-12]))
def test_count_runs_are_count_pairs(mu: float, count: int, delta: float) -> None:
    """Pairs by cdfs are never recognised as equal, so the product of n is another computation than the power."""
    power = gaussian_by_cdfs(mu).self_compose(count)
    product = gaussian_by_cdfs(mu).compose(*(gaussian_by_cdfs(mu) for _ in range(count - 1)))
    assert meet(power.epsilon(delta), product.epsilon(delta))
    assert meet(power.delta(0.5), product.delta(0.5))


@pytest.mark.slow
@quick
@given(family=families, chance=chances, counts=st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_counts_add_up(family: str, chance: random.Random, counts: tuple[int, int]) -> None:
    """Recognised as equal: the same answer to the last bit."""
    pair = FAMILIES[family](chance).pair
    parts = pair.self_compose(counts[0]).compose(pair.self_compose(counts[1]))
    assert parts.delta(0.3) == pair.self_compose(sum(counts)).delta(0.3)


@examples(6, 12, derandomize=True)
@given(names=st.lists(families, min_size=2, max_size=3), chance=chances)
def test_order_does_not_matter(names: list[str], chance: random.Random) -> None:
    pairs = [FAMILIES[name](chance).pair for name in names]
    answers = {each[0].compose(*each[1:]).delta(0.7) for each in itertools.permutations(pairs)}
    assert len(answers) == 1


@quick
@given(names=st.tuples(families, families), chance=chances, epsilon=st.floats(-2, 5))
def test_more_mechanisms_cost_no_less(names: tuple[str, str], chance: random.Random, epsilon: float) -> None:
    """The part is a post-processing of the whole."""
    first, second = (FAMILIES[name](chance).pair for name in names)
    assert first.delta(epsilon).lower <= first.compose(second).delta(epsilon).upper


@quick
@given(family=families, chance=chances)
def test_nothing_costs_nothing(family: str, chance: random.Random) -> None:
    nothing = FAMILIES[family](chance).pair.self_compose(0)
    assert nothing.epsilon(1e-9) == Interval(0.0, 0.0)
    assert nothing.delta(0.0).upper <= ROUNDING
    assert nothing.blowup(0.25).lower <= 0.25 <= nothing.blowup(0.25).upper


# --- more noise


NOISY: dict[str, Any] = {
    "gaussian": DominatingPair.gaussian,
    "laplace": DominatingPair.laplace,
    "discrete Laplace": lambda noise: DominatingPair.discrete_laplace(1 / noise, 2),
    "sampled Gaussian": lambda noise: DominatingPair.gaussian(noise).poisson_sampled(0.05),
    "sampled Laplace": lambda noise: DominatingPair.laplace(noise).poisson_sampled(0.05),
    "mixture": lambda noise: DominatingPair.gaussian_mixture([0.5, 0.3, 0.2], [0.0, 1.0, 2.0], noise),
    "replaced Gaussian": lambda noise: DominatingPair.gaussian_mixture([0.9, 0.1], [0, 1], noise, mirrored=True),
    "(ε, 0)": lambda noise: DominatingPair.approx_dp(1 / noise),
    "(1, δ)": lambda noise: DominatingPair.approx_dp(1.0, 0.01 / noise),
}


@examples(5, 100)
@given(
    kind=st.sampled_from(sorted(NOISY)),
    noise=st.floats(0.4, 8),
    factor=st.floats(1.0, 1.5),
    side=sides,
    count=st.sampled_from([1, 1, 2, 30]),
)
def test_more_noise_never_costs_more(kind: str, noise: float, factor: float, side: Any, count: int) -> None:
    quiet, loud = (NOISY[kind](level).self_compose(count) for level in (noise, noise * factor))
    for delta in (1e-2, 1e-8):
        assert loud.epsilon(delta, direction=side).lower <= quiet.epsilon(delta, direction=side).upper
    assert loud.delta(0.4, direction=side).lower <= quiet.delta(0.4, direction=side).upper
    assert loud.blowup(1e-3, direction=side).lower <= quiet.blowup(1e-3, direction=side).upper


@examples(4, 100)
@given(rates=st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), noise=st.floats(0.5, 5), side=sides)
def test_a_smaller_rate_never_costs_more(rates: tuple[float, float], noise: float, side: Any) -> None:
    low, high = (DominatingPair.gaussian(noise).poisson_sampled(rate).self_compose(10) for rate in sorted(rates))
    assert low.epsilon(1e-6, direction=side).lower <= high.epsilon(1e-6, direction=side).upper


# --- the unit of the noise


@quick
@given(chance=chances, power=st.integers(-40, 40), count=st.sampled_from([1, 7]))
def test_the_unit_does_not_matter(chance: random.Random, power: int, count: int) -> None:
    """Powers of 2 change no rounding: the same bits. Other units move each s/σ by a rounding: the same number."""
    weights = [0.5, 0.25, 0.25]
    shifts, deviation = sorted(chance.uniform(0, 4) for _ in weights), log_uniform(chance, 0.5, 5)

    def answer(unit: float) -> list[Interval]:
        pair = DominatingPair.gaussian_mixture(weights, [unit * s for s in shifts], unit * deviation)
        composition = pair.self_compose(count)
        return [composition.epsilon(1e-6), composition.delta(0.3), composition.blowup(1e-3)]

    assert answer(2.0**power) == answer(1.0)
    for first, second in zip(answer(3e-7), answer(1.0), strict=True):
        assert meet(first, second, ROUNDING * max(1.0, second.upper))


@quick
@given(noise=st.floats(0.3, 30), power=st.integers(-30, 30))
def test_noise_and_sensitivity_scale_together(noise: float, power: int) -> None:
    unit = 2.0**power
    for kind in (DominatingPair.gaussian, DominatingPair.laplace):
        assert kind(noise * unit, unit).epsilon(1e-5) == kind(noise).epsilon(1e-5)


# --- the curve


@quick
@given(family=families, chance=chances, side=sides, pair_of=st.tuples(st.floats(-3, 8), st.floats(-3, 8)))
def test_delta_falls_and_is_convex(
    family: str, chance: random.Random, side: Direction | None, pair_of: tuple[float, float]
) -> None:
    """In e^ε, and it falls no faster than 1 − e^ε below 0."""
    pair = FAMILIES[family](chance).pair
    low, high = sorted(pair_of)
    first, last = pair.delta(low, direction=side), pair.delta(high, direction=side)
    assert last.lower <= first.upper
    assert first.upper >= -math.expm1(low)
    middle = math.log((math.exp(low) + math.exp(high)) / 2)
    assert pair.delta(middle, direction=side).lower <= (first.upper + last.upper) / 2 + ROUNDING
    assert first.upper - last.lower + ROUNDING >= 0


@quick
@given(family=families, chance=chances, side=st.sampled_from(DIRECTIONS), epsilon=st.floats(0, 6))
def test_the_directions_mirror_each_other(family: str, chance: random.Random, side: Direction, epsilon: float) -> None:
    """δ_{P‖Q}(−ε) = 1 − e^{−ε} + e^{−ε} δ_{Q‖P}(ε): the complement of the best set."""
    pair = FAMILIES[family](chance).pair
    mirrored, near = pair.delta(-epsilon, direction=side), pair.delta(epsilon, direction=other(side))
    ends = [-math.expm1(-epsilon) + math.exp(-epsilon) * end for end in (near.lower, near.upper)]
    assert meet(mirrored, Interval(*ends), ROUNDING)


@quick
@given(family=families, chance=chances, side=sides, delta=st.floats(-12, -0.5).map(lambda power: 10.0**power))
def test_epsilon_and_delta_are_inverse(
    family: str, chance: random.Random, side: Direction | None, delta: float
) -> None:
    pair = FAMILIES[family](chance).pair
    result = pair.epsilon(delta, direction=side)
    if result.upper < math.inf:
        assert pair.delta(result.upper, direction=side).lower <= delta
    if 0 < result.lower < math.inf:
        assert pair.delta(result.lower, direction=side).upper >= delta


@quick
@given(family=families, chance=chances)
def test_the_worse_direction_is_the_worse_of_both(family: str, chance: random.Random) -> None:
    pair = FAMILIES[family](chance).pair
    for ask, at in ((pair.epsilon, 1e-4), (pair.delta, 0.4), (pair.blowup, 0.01)):
        ends = [ask(at, direction=side) for side in DIRECTIONS]
        worse = Interval(max(end.lower for end in ends), max(end.upper for end in ends))
        assert meet(ask(at), worse)


# --- tests of hypotheses


@quick
@given(family=families, chance=chances, side=sides, p=st.floats(-9, -0.01).map(lambda power: 10.0**power))
def test_beta_is_what_the_blowup_leaves(family: str, chance: random.Random, side: Direction | None, p: float) -> None:
    pair = FAMILIES[family](chance).pair
    power, error = pair.blowup(p, direction=side), pair.beta(p, direction=side)
    assert error.lower <= 1 - power.lower <= error.upper + ROUNDING
    assert error.lower - ROUNDING <= 1 - power.upper
    assert p <= power.lower + ROUNDING
    for epsilon in (-1.0, 0.0, 0.7, 3.0):  # B is the least of all lines e^ε p + δ(ε)
        assert power.lower <= math.exp(epsilon) * p + pair.delta(epsilon, direction=side).upper + ROUNDING


@quick
@given(family=families, chance=chances, p=st.floats(1e-6, 0.9))
def test_the_trade_off_of_one_direction_inverts_the_other(family: str, chance: random.Random, p: float) -> None:
    """β_{Q‖P}(β_{P‖Q}(p)) ≤ p, with equality where β falls: the best test's complement is the best the other way."""
    pair = FAMILIES[family](chance).pair
    beta = pair.beta(p, direction="remove")
    assert pair.beta(beta.upper, direction="add").lower <= p + ROUNDING


@quick
@given(family=families, chance=chances, side=sides)
def test_the_blowup_is_concave(family: str, chance: random.Random, side: Direction | None) -> None:
    if side is None:
        return  # the larger of two concave curves need not be one
    pair = FAMILIES[family](chance).pair
    low, high = sorted(log_uniform(chance, 1e-6, 0.9) for _ in range(2))
    first, last = pair.blowup(low, direction=side), pair.blowup(high, direction=side)
    assert pair.blowup((low + high) / 2, direction=side).upper + ROUNDING >= (first.lower + last.lower) / 2
    assert first.lower <= last.upper


@quick
@given(family=families, chance=chances, prior=st.floats(0.01, 0.99))
def test_advantage_and_bayes_risk(family: str, chance: random.Random, prior: float) -> None:
    """The advantage is δ(0); a fair prior errs (1 − advantage)/2 of the time; prior π errs π(1 − δ(log((1 − π)/π)))."""
    case = FAMILIES[family](chance)
    pair, exact = case.pair, case.exact
    advantage = pair.advantage()
    assert advantage == pair.delta(0.0)
    assert advantage.lower <= exact.delta(0) <= advantage.upper
    fair = pair.bayes_risk(0.5)
    assert meet(fair, Interval((1 - advantage.upper) / 2, (1 - advantage.lower) / 2), ROUNDING)
    likely = oracle.real(prior)
    truth = min(likely * (1 - exact.delta(oracle.mp.log((1 - likely) / likely), side)) for side in DIRECTIONS)
    result = pair.bayes_risk(prior)
    assert result.lower <= truth <= result.upper


# --- parts


@quick
@given(names=st.lists(families, min_size=2, max_size=3), chance=chances, delta=st.sampled_from([1e-2, 1e-7]))
def test_disjoint_parts(names: list[str], chance: random.Random, delta: float) -> None:
    """The worst part, or the worst composition of two parts, which a unit may leave and enter."""
    pairs = [FAMILIES[name](chance).pair for name in names]
    singles = [pair.epsilon(delta) for pair in pairs]
    moves = [
        first.compose(way) for first, second in itertools.combinations(pairs, 2) for way in (second, second.reversed())
    ]
    doubles = [move.epsilon(delta) for move in moves]
    for item, parts in ((True, singles), (False, doubles)):
        result = DominatingPair.parallel(pairs, single=item).epsilon(delta)
        assert meet(result, Interval(max(part.lower for part in parts), max(part.upper for part in parts)))
    assert DominatingPair.parallel(pairs[:1], single=False).epsilon(delta) == singles[0]


# --- whole curves


CURVES = ["laplace", "sampled_gaussian", "replaced_gaussian", "mixture", "discrete_gaussian", "finite", "approx_dp"]


@pytest.mark.grid
@pytest.mark.parametrize("family", CURVES)
@pytest.mark.parametrize("side", DIRECTIONS)
def test_whole_curves_contain_the_truth(family: str, side: Direction) -> None:
    case = FAMILIES[family](random.Random(f"curves {family}"))
    epsilons = np.linspace(-2, 6, 25)
    low, high = case.pair.privacy_profile(epsilons, side)
    truth = [case.exact.delta(float(point), side) for point in epsilons]
    assert all(a <= t <= b for a, t, b in zip(low, truth, high, strict=True))
    ps = np.geomspace(1e-8, 0.95, 25)
    low, high = case.pair.blowups(ps, side)
    powers = [case.exact.blowup(float(point), side) for point in ps]
    assert all(a <= t <= b for a, t, b in zip(low, powers, high, strict=True))
    low, high = case.pair.trade_off(ps, side)
    assert all(a <= 1 - t <= b for a, t, b in zip(low, powers, high, strict=True))


@pytest.mark.grid
@pytest.mark.parametrize("family", ["laplace", "sampled_gaussian", "mixture", "approx_dp"])
def test_the_gaussian_envelope(family: str) -> None:
    """At the upper μ the Gaussian curve lies above wherever δ(ε) exceeds δ; a little below the lower one not."""
    case = FAMILIES[family](random.Random(f"envelope {family}"))
    delta = 1e-6
    result = case.pair.mu(delta)
    epsilons = np.linspace(0, float(case.exact.epsilon(delta)), 200)
    truth = [case.exact.delta(float(point)) for point in epsilons]

    def above(mu: float) -> bool:
        curve = oracle.gaussian(1 / oracle.real(mu))
        return all(t <= delta or t <= curve.delta(float(e)) for t, e in zip(truth, epsilons, strict=True))

    assert above(result.upper)
    assert not above(result.lower * 0.98)  # 200 points lie close enough to the binding one for 2 %


def test_the_gaussian_envelope_of_a_gaussian() -> None:
    for mu in (0.1, 1.0, 5.0):
        for pair in (DominatingPair.gaussian(1 / mu), gaussian_by_cdfs(mu)):
            result = pair.mu(1e-9)
            assert result.lower <= mu * (1 + 2.0**-52)  # 1/(1/μ) is a rounding off
            assert result.upper >= mu * (1 - 2.0**-52)


@pytest.mark.parametrize("p", [1e-9, 1e-6, 1e-3, 0.1, 0.9])
def test_what_is_told_for_certain_does_not_widen_the_blowup(p: float) -> None:
    told = DominatingPair.gaussian(20.0).self_compose(3)
    told = told.compose(DominatingPair.laplace(2.0), DominatingPair.approx_dp(0.1, 1e-4))
    assert told.blowup(p).width <= 1e-3 * told.blowup(p).upper


@pytest.mark.parametrize("side", DIRECTIONS)
def test_many_points_are_as_good_as_one(side: Direction) -> None:
    """Lattices for five of them serve all others."""
    pair = DominatingPair.gaussian(0.8).poisson_sampled(0.005).self_compose(1000)
    ps = np.geomspace(1e-9, 0.999, 50)
    low, high = pair.blowups(ps, side)
    assert ((high - low) <= 1e-3 * high).all()
    for index in range(0, 50, 7):
        assert meet(pair.blowup(float(ps[index]), direction=side), Interval(float(low[index]), float(high[index])))
