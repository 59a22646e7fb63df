"""Selections of bounded range: the enclosure of the adaptive optimum against brute force, and published accounts."""

from __future__ import annotations

import functools
import itertools
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.bounds import Rigor
from dpassay.accounting.selection import bounded_range
from dpassay.accounting.selection import curve as curve_module
from dpassay.accounting.selection.bounded_range import (
    METHODS,
    bounded_range_delta,
    bounded_range_epsilon,
    bounded_range_pair,
    bounded_range_profile,
)
from dpassay.accounting.selection.curve import SelectionCurve, selection_curve
from dpassay.accounting.selection.worst_case import Selections

Number: TypeAlias = mpmath.mpf
ROOT = Path(__file__).resolve().parents[3]
FLOAT = 1e-12  # relative float64 error of the brute force over at most 64 leaves; each leaf's is below 1e-14

# Records N (δ = N^−1.1), tokens n, denominator s, printed ε, all at clip 9 and temperature 1.5.
TABLE = [
    (108000, 367, 64, 9.888715),
    (108000, 373, 64, 9.985061),
    (108000, 689, 256, 2.897877),
    (108000, 733, 256, 2.999107),
    (504000, 331, 64, 9.883027),
    (504000, 604, 256, 2.899025),
    (230400, 349, 64, 9.896336),
    (230400, 645, 256, 2.899740),
]


def eta_of(numerator: int, denominator: int) -> float:
    return numerator * 9 / (denominator * 1.5)


# --- the oracle: the recursion in 50 digits, with the maximum over t searched


def chance(t: Number, eta: Number) -> Number:
    return (1 - mpmath.exp(t - eta)) / (1 - mpmath.exp(-eta))


def highest(function: Callable[[Number], Number], eta: Number, points: int, steps: int) -> Number:
    """The largest value found: on a grid, then by golden section around its best point. Never above the maximum."""
    grid = [eta * i / points for i in range(points + 1)]
    values = [function(t) for t in grid]
    best = max(range(points + 1), key=values.__getitem__)
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points)]
    ratio = (mpmath.sqrt(5) - 1) / 2
    for _ in range(steps):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if function(left) > function(right):
            high = right
        else:
            low = left
    return max(values[best], function((low + high) / 2))


def optimum(count: int, epsilon: Number, eta: Number, points: int = 16, steps: int = 20) -> Number:
    """F_n(ε), from below, by the definition; by 16 points and 20 steps to a relative 1e-9."""
    if count == 0:
        return max(1 - mpmath.exp(epsilon), Number(0))
    return highest(lambda t: mean(count, epsilon, t, eta, points, steps), eta, points, steps)


def mean(count: int, epsilon: Number, t: Number, eta: Number, points: int, steps: int) -> Number:
    p = chance(t, eta)
    before = functools.partial(optimum, count - 1, eta=eta, points=points, steps=steps)
    if count == 2:
        before = functools.partial(one, eta=eta)
    return p * before(epsilon - t) + (1 - p) * before(epsilon - t + eta)


def one(epsilon: Number, eta: Number) -> Number:
    """F_1 in closed form; `test_one_selection_is_exact` holds it against the search."""
    if epsilon >= eta:
        return Number(0)
    if epsilon <= -eta:
        return 1 - mpmath.exp(epsilon)
    return (1 - mpmath.exp((epsilon - eta) / 2)) ** 2 / (1 - mpmath.exp(-eta))


# --- the enclosure


@pytest.mark.grid
@pytest.mark.parametrize("eta", [1e-3, 0.1875, 2.0, 20.0])
def test_one_selection_is_exact(eta: float) -> None:
    """The closed form is the maximum over t, and lies within the enclosure at its nodes and between them."""
    result = selection_curve(eta, 1, 256, 1e-12)
    for share in (-0.75, 0.0, 0.125, 0.3, 0.71):
        epsilon = share * eta
        with mpmath.workdps(50):
            exact, range_ = one(Number(epsilon), Number(eta)), Number(eta)
            searched = optimum(1, Number(epsilon), range_, points=64, steps=80)
            assert searched <= exact * (1 + Number(10) ** -40)
            assert searched >= exact * (1 - Number(10) ** -25)
        if epsilon >= 0:
            interval = result.delta(epsilon)
            # Linear interpolation of a function with |G''| ≤ 2G/(η − ε)² or so: (h/0.29η)²/8·2 at most, e^η apart.
            assert interval.lower <= exact <= interval.upper
            assert interval.upper <= exact * (1 + max(1.0, eta) ** 2 * (1 / (0.29 * 256)) ** 2)


@pytest.mark.grid
@pytest.mark.parametrize("eta", [0.1875, 1.5, 6.0])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.95, 1.4, 1.8])
def test_two_selections_against_the_search(eta: float, share: float) -> None:
    """The search gives a lower bound; its golden section over a smooth F_1 is as good as exact."""
    epsilon = share * eta
    with mpmath.workdps(50):
        searched = optimum(2, Number(epsilon), Number(eta), points=100, steps=60)
    interval = selection_curve(eta, 2, 512, 1e-12).delta(epsilon)
    assert searched <= interval.upper
    assert interval.lower <= searched * (1 + Number(10) ** -12)
    # The curve is of order (2η − ε)² at the end of its support, so the error is of order (h/(2η − ε))².
    assert interval.upper <= searched * (1 + max(1.0, eta) ** 2 * (2 / (512 * (2 - share))) ** 2) + 2e-12


@pytest.mark.parametrize(("eta", "epsilon"), [(0.1875, 0.1), (1.5, 2.0)])
def test_three_selections_against_the_search(eta: float, epsilon: float) -> None:
    with mpmath.workdps(50):
        searched = optimum(3, Number(epsilon), Number(eta))
    interval = selection_curve(eta, 3, 512, 1e-12).delta(epsilon)
    assert searched <= interval.upper
    # Golden section narrows an interval of η/8 by 0.618^20, so t is within 1e-5 η: the loss is of second order.
    assert interval.lower <= searched * (1 + 1e-9)
    assert interval.upper <= searched * (1 + 1e-4)


@examples(20, 60, derandomize=True)
@given(
    eta=st.sampled_from([0.1875, 0.7, 3.0, 12.0]),
    epsilons=st.lists(st.floats(0, 5.9), min_size=4, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    tilted=st.booleans(),
)
def test_no_adversary_does_better(eta: float, epsilons: list[float], seed: int, tilted: bool) -> None:
    """Six selections, each t picked from the outcomes before it at random, or near its middle: δ by enumeration."""
    random = np.random.default_rng(seed)
    p, loss = np.ones(1), np.zeros(1)
    for _ in range(6):
        t = eta * (random.beta(8, 8, p.size) if tilted else random.random(p.size))
        high = -np.expm1(t - eta) / -math.expm1(-eta)
        p, loss = np.concatenate([p * high, p * (1 - high)]), np.concatenate([loss + t, loss + t - eta])
    result = selection_curve(eta, 6, 64, 1e-14)
    shares = np.array(epsilons) * eta
    exact = np.array([p @ np.maximum(-np.expm1(epsilon - loss), 0) for epsilon in shares])
    assert (exact * (1 - FLOAT) <= result.upper_at(shares)).all()


@examples(14, 40, derandomize=True)
@given(eta=st.floats(0.05, 8.0), seed=st.integers(0, 2**32 - 1))
def test_softmax_of_shifted_scores_is_covered_in_both_orders(eta: float, seed: int) -> None:
    """Three softmaxes over four tokens, scores picked from the tokens before, moved by at most η, either sign of ε."""
    random = np.random.default_rng(seed)
    p, q = np.ones(1), np.ones(1)
    for _ in range(3):
        scores = random.normal(scale=2.0, size=(p.size, 4))
        moved = scores + eta * np.where(random.random((p.size, 4)) < 0.5, random.integers(0, 2, (p.size, 4)), 0.5)
        laws = [np.exp(s) / np.exp(s).sum(axis=1, keepdims=True) for s in (scores, moved)]
        p, q = ((side[:, None] * law).ravel() for side, law in zip((p, q), laws, strict=True))
    epsilons = np.linspace(-2 * eta, 2 * eta, 9)
    bounds = bounded_range_profile(eta, 3, epsilons)
    for one_side, other in ((p, q), (q, p)):
        exact = np.maximum(one_side - np.exp(epsilons)[:, None] * other, 0).sum(axis=1)
        assert (exact <= bounds + FLOAT).all()


def test_finer_lattices_enclose_the_same_number() -> None:
    """The error is of second order: a step half as wide makes the interval four times narrower, here at least three."""
    eta, delta = eta_of(2, 64), 108000**-1.1
    intervals = [selection_curve(eta, 60, cells, 1e-12).epsilon(delta) for cells in (8, 16, 32, 64)]
    for first, second in itertools.combinations(intervals, 2):
        assert first.lower <= second.upper
        assert second.lower <= first.upper
    for coarse, fine in itertools.pairwise(intervals):
        assert fine.upper < coarse.upper
        assert fine.width < coarse.width / 3
        assert fine.upper - intervals[-1].lower < coarse.upper - intervals[-1].lower


@pytest.mark.parametrize(("eta", "count", "cells"), [(0.5, 30, 32), (4.0, 12, 64), (33.3, 6, 128), (1e-5, 20, 64)])
def test_lower_lies_under_upper_at_every_node(eta: float, count: int, cells: int) -> None:
    """33.3 has nodes where δ is 1 to float precision, and cells whose curvature is all rounding."""
    result = selection_curve(eta, count, cells, 1e-15)
    assert (result.lower <= result.upper).all()
    assert result.upper.max() <= 1
    assert result.lower.min() >= 0


@pytest.mark.parametrize(("eta", "count"), [(0.1875, 1), (0.1875, 2), (0.1875, 40), (2.0, 5), (9.0, 3)])
def test_a_step_takes_the_highest_chord_of_the_interpolant(eta: float, count: int) -> None:
    """At every node no chord that starts at one of 64 places in a cell is higher, and one of them is nearly as high."""
    cells, floor = 16, 1e-12
    lattice = curve_module.StepTables.of(eta, cells)
    upper = selection_curve(eta, count, cells, floor).upper
    raised, _ = curve_module.upper_step(lattice, upper, floor, floor)
    nodes = lattice.extended(upper, floor, lattice.error)
    indices = np.exp(lattice.step * np.arange(-cells, len(nodes) - cells))
    for index in range(len(raised)):
        x = indices[index + cells]
        start = np.linspace(indices[index : index + cells], indices[index + 1 : index + cells + 1], 64).ravel()
        start = np.clip(start, x * math.exp(-eta), x)
        left, right = (np.interp(y, indices, nodes) for y in (start, np.minimum(start * math.exp(eta), indices[-1])))
        right_share = (x - start) / (start * math.expm1(eta))
        chords = left * (1 - right_share) + right * right_share
        # np.interp of products of e^{ih} errs by 1e-13 of the values at the ends of the chord.
        assert raised[index] >= chords.max() - 1e-12 * left.max()
        # The best start is missed by h/126, and 2^−21 h² are charged; the second derivative is below 2B/(1 − e^{−η}).
        curvature = left.max() * (1 + 1 / lattice.kappa) / -math.expm1(-eta)
        slack = curvature * lattice.step**2 * (126.0**-2 + 2.0**-21) + 1e-12 * left.max()
        assert raised[index] <= chords.max() + slack


def test_cells_without_trusted_curvature_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rough bound of a cell, used for all cells, lies above the other, and is off by first order in h at most."""
    fine: SelectionCurve = selection_curve(0.5, 5, 64, 1e-12)
    selection_curve.cache_clear()
    monkeypatch.setattr(curve_module, "TRUSTED", 0.0)
    rough = [selection_curve(0.5, 5, cells, 1e-12).upper for cells in (32, 64)]
    monkeypatch.undo()
    selection_curve.cache_clear()
    assert (rough[1][:300] >= fine.lower[:300]).all()
    assert not np.array_equal(rough[1][:300], fine.upper[:300])
    middle = fine.upper[64]
    assert 0 < rough[1][64] - middle < 0.75 * (rough[0][32] - middle)


# --- the front


@pytest.mark.parametrize(("records", "count", "denominator", "printed"), TABLE)
def test_zcdp_reproduces_the_printed_accounts(records: int, count: int, denominator: int, printed: float) -> None:
    """Rounding of the six printed digits: 5e-7; the search for the order is good to a relative 1e-9."""
    bound = bounded_range_epsilon(eta_of(2, denominator), count, records**-1.1, "zcdp")
    assert bound.value == pytest.approx(printed, abs=6e-7)
    assert bound.rigor is Rigor.CERTIFIED
    assert bound.delta == records**-1.1


@pytest.mark.parametrize(
    ("count", "denominator", "known"), [(367, 64, 23.416), (373, 64, 23.664), (689, 256, 6.3416), (733, 256, 6.5729)]
)
def test_zcdp_where_a_vector_is_exchanged(count: int, denominator: int, known: float) -> None:
    bound = bounded_range_epsilon(eta_of(4, denominator), count, 108000**-1.1, "zcdp")
    assert bound.value == pytest.approx(known, abs=0.5001 * 10.0 ** -(5 - len(str(int(known)))))


def test_the_adaptive_optimum_of_the_first_row() -> None:
    """About 9.2489, computed independently; and below the zCDP bound by six percent."""
    bound = bounded_range_epsilon(eta_of(2, 64), 367, 108000**-1.1)
    assert bound.method == "adaptive"
    assert bound.interval is not None
    assert bound.interval.lower <= 9.24895
    assert 9.24885 <= bound.value <= 9.2496
    assert bound.interval.width <= 1e-4 * bound.value


def test_one_context_that_flips_stays_below_the_adaptive_bound() -> None:
    """A record whose logits go from (9, −9) to (−9, 9), against 63 that sum to 0: exact ε 21.834 by enumeration."""
    eta, delta, count = eta_of(4, 64), 108000**-1.1, 367
    half = mpmath.mpf(eta) / 2
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(-half))
        losses = [(2 * heads - count) * half for heads in range(count + 1)]
        masses = [mpmath.binomial(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]

        def exact(epsilon: Number) -> Number:
            return mpmath.fsum(
                m * (1 - mpmath.exp(epsilon - loss)) for m, loss in zip(masses, losses, strict=True) if loss > epsilon
            )

        low, high = Number(0), Number(60)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if exact(middle) > delta else (low, middle)
    assert float(high) == pytest.approx(21.834, abs=5e-4)
    assert high <= bounded_range_epsilon(eta, count, delta, "adaptive").value


def test_delta_and_epsilon_are_inverse() -> None:
    """δ at the upper end of ε is at most 1e-6, at the lower end at least; the two questions use different lattices."""
    bound = bounded_range_epsilon(0.3, 40, 1e-6)
    assert bound.interval is not None
    at_upper, at_lower = (bounded_range_delta(0.3, 40, end) for end in (bound.value, bound.interval.lower))
    assert at_upper.at == bound.value
    assert at_upper.interval is not None
    assert at_upper.interval.lower <= 1e-6 <= at_lower.value
    # ε is known to 1e-4 of itself (4.6), and log δ falls by less than 6 a unit of ε.
    assert at_upper.value == pytest.approx(1e-6, rel=6 * 4.6e-4)
    assert at_lower.value == pytest.approx(1e-6, rel=6 * 4.6e-4)
    assert bounded_range_delta(0.3, 40, 0.3 * 40).value == 0
    assert bounded_range_delta(0.3, 40, 1.0, "zcdp").value >= bounded_range_delta(0.3, 40, 1.0).value


def test_few_selections_cost_no_more_than_their_ranges() -> None:
    bound = bounded_range_epsilon(2.0, 2, 1e-15)
    assert bound.value <= 4.0
    assert bounded_range_epsilon(2.0, 2, 1e-15, "pure").value == 4.0
    assert bounded_range_epsilon(0.1, 0, 1e-6).value == 0
    assert bounded_range_delta(0.1, 0, 0.0).value == 0
    assert bounded_range_profile(0.1, 0, [-1.0, 0.0]).tolist() == pytest.approx([-math.expm1(-1.0), 0.0], rel=1e-14)


def test_the_profile_is_the_delta_of_every_epsilon() -> None:
    epsilons = np.linspace(-4.0, 9.0, 27).reshape(3, 9)
    deltas = bounded_range_profile(0.3, 40, epsilons)
    assert deltas.shape == (3, 9)
    for epsilon, delta in zip(epsilons.ravel(), deltas.ravel(), strict=True):
        distance = abs(float(epsilon))
        there = bounded_range_delta(0.3, 40, distance).value
        expected = there if epsilon >= 0 else -math.expm1(-distance) + math.exp(-distance) * there
        # The order of the zCDP tail is a closed form here and searched there.
        assert delta == pytest.approx(expected, rel=1e-9 if delta > 1e-14 else 1.0)
        assert delta >= -math.expm1(epsilon)


def test_several_ranges_add_up() -> None:
    assert (
        bounded_range_epsilon([0.2, 0.2], 20, 1e-6, "zcdp").value == bounded_range_epsilon(0.2, 40, 1e-6, "zcdp").value
    )
    assert bounded_range_epsilon([0.2, 0.2], 20, 1e-6).interval == bounded_range_epsilon(0.2, 40, 1e-6).interval
    mixed = bounded_range_epsilon([0.3, 0.4], 10, 1e-6, "zcdp").value
    assert mixed == pytest.approx(bounded_range_epsilon(0.5, 10, 1e-6, "zcdp").value, rel=1e-8)  # 9 + 16 = 25
    assert bounded_range_epsilon([0.1, 0.4], 3, 1e-6, "pure").value == pytest.approx(1.5, rel=1e-15)


def test_blocks_lose_little() -> None:
    """300 selections in blocks: above the optimum of 300, below zCDP, and the better the longer the blocks."""
    eta, count, delta = 0.15, 300, 1e-6
    whole = bounded_range_epsilon(eta, count, delta, "adaptive")
    single = bounded_range_epsilon(eta, count, delta, "single_step")
    assert whole.interval is not None
    kinds = Selections(((eta, count),))
    blocks = [bounded_range.pair(kinds, delta, block).epsilon(delta).upper for block in (1, 10, 100)]
    assert blocks[0] == pytest.approx(single.value, rel=1e-12)
    assert whole.interval.lower <= blocks[2] < blocks[1] < blocks[0]
    assert blocks[2] < whole.value * 1.01
    assert blocks[1] < bounded_range_epsilon(eta, count, delta, "zcdp").value < blocks[0]


def test_single_steps_of_the_first_row() -> None:
    """10.97 in the literature's own units: worse than zCDP."""
    bound = bounded_range_epsilon(eta_of(2, 64), 367, 108000**-1.1, "single_step")
    assert bound.value == pytest.approx(10.97, abs=0.005)


@pytest.mark.slow
def test_long_sequences_and_mixtures_of_ranges() -> None:
    """10⁵ selections of η√n/2 = 1 are close to a Gaussian of μ = 1, whose ε(1e-6) is 4.8886 by its closed form."""
    count, delta = 100_000, 1e-6
    bound = bounded_range_epsilon(2 / math.sqrt(count), count, delta)
    assert bound.method == "adaptive"
    with mpmath.workdps(50):

        def gaussian(epsilon: Number) -> Number:
            return mpmath.ncdf(0.5 - epsilon) - mpmath.exp(epsilon) * mpmath.ncdf(-0.5 - epsilon)

        assert gaussian(Number("4.88")) > delta > gaussian(Number("4.90"))
    assert 4.88 < bound.value < 4.92
    mixed = bounded_range_epsilon([0.1, 0.2], 100, delta)
    assert mixed.method == "adaptive"
    assert mixed.value < bounded_range_epsilon([0.1, 0.2], 100, delta, "zcdp").value
    assert bounded_range_pair(0.1, 0).epsilon(delta).upper == 0


def test_other_mechanisms_may_run_in_between() -> None:
    """Selections of two ranges around a randomised response, each t picked from all outcomes so far: by enumeration."""
    from dpassay.accounting.lattice.pairs import DominatingPair

    ranges, response = (0.6, 0.9, None, 0.6, 0.9), 0.4
    truth = 1 / (1 + math.exp(-response))
    others = DominatingPair.finite([truth, 1 - truth], [1 - truth, truth])
    pair = bounded_range_pair([0.6, 0.9], 2).compose(others)
    epsilons = np.array([-0.5, 0.3, 1.0, 1.8])
    bounds = np.array([pair.delta(float(epsilon)).upper for epsilon in epsilons])
    random = np.random.default_rng(7)
    worst = np.zeros(epsilons.shape)
    for _ in range(300):
        p, loss = np.ones(1), np.zeros(1)
        for eta in ranges:
            t = np.full(p.size, response) if eta is None else eta * random.beta(8, 8, p.size)
            width = 2 * response if eta is None else eta
            high = np.full(p.size, truth) if eta is None else -np.expm1(t - eta) / -math.expm1(-eta)
            p, loss = np.concatenate([p * high, p * (1 - high)]), np.concatenate([loss + t, loss + t - width])
        worst = np.maximum(worst, [p @ np.maximum(-np.expm1(epsilon - loss), 0) for epsilon in epsilons])
    assert (worst * (1 - FLOAT) <= bounds).all()
    assert (bounds <= 1.5 * worst).all()  # the seeded guesses come this close, so the bound is not an empty one


@pytest.mark.parametrize(
    ("eta", "count", "delta", "method", "message"),
    [
        (0.0, 3, 1e-6, "best", "eta must be above 0"),
        (math.inf, 3, 1e-6, "best", "eta must be finite"),
        ([], 3, 1e-6, "best", "not an empty list"),
        (0.1, -1, 1e-6, "best", "count must be at least 0"),
        (0.1, 3, 0.0, "best", "delta must be strictly between 0 and 1"),
        (0.1, 3, 1e-6, "grid", "method must be one of best, adaptive"),
        (1e-6, 3, 1e-6, "adaptive", "eta between 1e-05 and 100, not 1e-06; use zcdp or pure"),
        (2.0, 1000, 1e-6, "adaptive", "of at most 20, not 31.62; use zcdp or pure"),
    ],
)
def test_impossible_questions(eta: float, count: int, delta: float, method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bounded_range_epsilon(eta, count, delta, method)


def test_best_does_without_adaptive_where_it_has_no_bound() -> None:
    assert bounded_range_epsilon(1e-6, 3, 1e-6).method in ("zcdp", "pure")
    assert bounded_range_epsilon(33.3, 30, 1e-6).value == pytest.approx(999.0, rel=1e-15)
    assert bounded_range_profile(33.3, 30, [998.0]).tolist() == pytest.approx([-math.expm1(-1.0)], rel=1e-9)
    with pytest.raises(ValueError, match="finite"):
        bounded_range_profile(0.1, 3, [math.nan])
    with pytest.raises(ValueError, match="adjacency must be one of"):
        bounded_range_epsilon(0.1, 3, 1e-6, adjacency="both")
    assert METHODS[0] == "best"


def test_the_guide_runs() -> None:
    """The code block of the guide, and the comments beside it that state numbers."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "selection.md").read_text(), flags=re.DOTALL)
    (expected,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "selection.md").read_text(), flags=re.DOTALL)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == expected
