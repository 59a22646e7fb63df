"""Chernoff's bound lies above the exact δ(ε), and not far above."""

from __future__ import annotations

import math
import random

import oracle
import pytest
from oracle_cases import FAMILIES, gaussian_by_cdfs

from dpassay.accounting.lattice.chernoff import tail_bound
from dpassay.accounting.lattice.components import DIRECTIONS
from dpassay.accounting.lattice.laws import Law
from dpassay.accounting.lattice.pairs import DominatingPair


def laws_of(pair: DominatingPair, side: str) -> list[tuple[Law, int]]:
    (parts,) = pair.alternatives
    return [(getattr(part, side), count) for part, count in parts]


@pytest.mark.grid
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_it_bounds_the_exact_delta(family: str, seed: int) -> None:
    """Of a mechanism beside two runs of a finite one."""
    chance = random.Random(f"{family} {seed}")
    case, finite = FAMILIES[family](chance), FAMILIES["discrete_laplace"](chance)
    assert isinstance(finite.exact, oracle.Atoms)
    pair = case.pair.compose(finite.pair.self_compose(2))
    exact = case.exact.with_atoms(finite.exact.power(2))
    for side in DIRECTIONS:
        for epsilon in (0.3, 9.0, 40.0):
            assert exact.delta(epsilon, side) <= tail_bound(laws_of(pair, side), epsilon)


@pytest.mark.parametrize(("mu", "count"), [(1.0, 1), (0.5, 4), (0.1, 400), (0.01, 10_000)])
def test_of_gaussians_it_is_off_by_a_small_factor_of_the_exponent(mu: float, count: int) -> None:
    laws = laws_of(gaussian_by_cdfs(mu).self_compose(count), "remove")
    exact = oracle.gaussian(1 / (mu * math.sqrt(count)))
    for epsilon in (15.0, 30.0):
        truth = exact.delta(epsilon, "remove")
        result = tail_bound(laws, epsilon)
        assert truth <= result
        assert oracle.mp.log(result) <= 0.7 * oracle.mp.log(truth)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpassay.accounting.lattice.pairs.WidthNotMet")
def test_one_rare_large_loss_is_counted_as_such() -> None:
    """Moments alone would say 2.5e-8: most of e^{λL} comes from losses that never happen."""
    pair = DominatingPair.gaussian(1.0).poisson_sampled(1e-6)
    truth = oracle.sampled_gaussian(1.0, 1e-6).delta(0.5, "remove")
    result = pair.self_compose(100).delta(0.5, direction="remove")
    assert truth <= result.lower * 1.001
    assert (
        result.upper <= 100 * 100 * truth
    )  # a hundred runs, and the probability of an event of whose loss δ is a part
