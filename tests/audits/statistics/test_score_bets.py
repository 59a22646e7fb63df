"""Bets on likelihood ratios: means over all (ε, δ)-DP mechanisms, growth, false alarms, ceilings, and power."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special, stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import ApproxDP, Guarantee, PureDP
from dpassay.attacks.black_box.likelihood_ratios import fitted_likelihood_ratios
from dpassay.audits.games.distinguishing_bets import bet
from dpassay.audits.statistics.score_bets import (
    LEVEL,
    Counted,
    ScoreWealth,
    detectable_by_bets,
    grid,
    log_gains,
    most_shown,
)

RATIOS = np.array([-37, -14, -9, 0, 6, 13, 40]) * LEVEL  # rounded ratios of −3.7 to 4
OPTIONS: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, "unit": Unit(), "score": float}


def counted(on_d: Any, on_d_prime: Any, ratios: Any = RATIOS) -> Counted:
    """Weights of some ratios, on levels that reach from the first to the last one."""
    levels = np.rint(np.asarray(ratios) / LEVEL).astype(int)
    first, size = int(levels[0]), int(levels[-1] - levels[0]) + 1
    without, inside = (np.bincount(levels - first, side, size).astype(np.float64) for side in (on_d, on_d_prime))
    return Counted(first, without, inside)


def factors(seen: Counted, epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The factor of one more output of each ratio, on D and on D′."""
    sides = []
    for weights in ((1.0, 0.0), (0.0, 1.0)):
        one = [counted(*(weight * unit for weight in weights)) for unit in np.eye(len(RATIOS))]
        sides.append(np.exp([float(log_gains(seen, item, np.array([epsilon]), delta)[0]) for item in one]))
    return sides[0], sides[1]


def largest_mean(on_d: np.ndarray, on_d_prime: np.ndarray, epsilon: float, delta: float) -> float:
    """The largest E f(x) + E f′(y) over all pairs of laws of (ε, δ)-DP mechanisms, by a linear program.

    Variables: p, q, and u ≥ q − e^ε·p, v ≥ p − e^ε·q, both with a sum of at most δ.
    """
    n, grown = len(on_d), math.exp(epsilon)
    none, one = np.zeros((n, n)), np.eye(n)
    above = np.block([[-grown * one, one, -one, none], [one, -grown * one, none, -one]])
    sums = np.kron(np.eye(4), np.ones(n))
    result = optimize.linprog(
        -np.concatenate([on_d, on_d_prime, np.zeros(2 * n)]),
        A_ub=np.concatenate([above, sums[2:]]),
        b_ub=np.concatenate([np.zeros(2 * n), [delta, delta]]),
        A_eq=sums[:2],
        b_eq=[1, 1],
    )
    assert result.success
    assert result.fun is not None
    return -float(result.fun)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.05, 0.3])
def test_no_pair_of_laws_gains_on_average(epsilon: float, delta: float) -> None:
    """Linear programs are solved to about 1e-9. For δ = 0 the worst laws lose nothing either, so bets are not timid."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        seen = counted(*(rng.dirichlet(np.ones(len(RATIOS))) * np.exp(sign * RATIOS / 2) for sign in (-1, 1)))
        mean = largest_mean(*factors(seen, epsilon, delta), epsilon, delta)
        assert mean <= 2 + 1e-7
        if delta == 0:
            assert mean == pytest.approx(2, abs=1e-7)


@pytest.mark.parametrize("epsilon", [0.2, 0.8, 1.5])
def test_no_other_bet_grows_faster(epsilon: float) -> None:
    """The growth is the least divergence from the laws of an ε-DP mechanism, found by a general minimiser."""
    ratios = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    on_d = np.array([0.4, 0.3, 0.2, 0.0, 0.0])
    on_d[3:] = on_d[[1, 0]] * np.exp(ratios[[1, 0]])  # symmetric, and with these ratios
    on_d /= on_d.sum()
    on_d_prime = on_d * np.exp(ratios)
    assert on_d_prime.sum() == pytest.approx(1)
    law = counted(on_d, on_d_prime, ratios)
    growth = float(log_gains(law, law, np.array([epsilon]), 0.0)[0])
    both, grown = np.concatenate([on_d, on_d_prime]), math.exp(epsilon)
    minimize: Any = optimize.minimize
    nearest = minimize(
        lambda x: float(np.sum(both * np.log(both / x))),
        np.full(10, 0.2),
        bounds=[(1e-6, 1)] * 10,
        constraints=[
            {"type": "eq", "fun": lambda x: [x[:5].sum() - 1, x[5:].sum() - 1]},
            {"type": "ineq", "fun": lambda x: np.concatenate([grown * x[:5] - x[5:], grown * x[5:] - x[:5]])},
        ],
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert nearest.success
    assert growth == pytest.approx(nearest.fun, abs=1e-6)
    assert growth > 0.005


Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def gaussian_delta(epsilon: float) -> float:
    """δ at ε of N(1, 1) against N(0, 1), whose ratio exceeds e^ε above ε + 1/2."""
    return float(special.ndtr(0.5 - epsilon) - math.exp(epsilon) * special.ndtr(-0.5 - epsilon))


def response(rng: np.random.Generator, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response of ε = 1."""
    wrong = 1 / (1 + math.e)
    return (rng.random(runs) < wrong).astype(float), (rng.random(runs) >= wrong).astype(float)


def failing(rng: np.random.Generator, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response of ε = 1 that gives everything away with probability 0.05."""
    return tuple(  # type: ignore[return-value]
        np.where(rng.random(runs) < 0.05, 3.0 * sign, side - 0.5)
        for sign, side in zip((-1, 1), response(rng, runs), strict=True)
    )


BOUNDARY: dict[str, tuple[Draw, Guarantee]] = {
    "response": (response, PureDP(1.0)),
    "failing": (failing, ApproxDP(1.0, 0.05)),
    "Laplace": (lambda rng, runs: (rng.laplace(0, 1, runs), rng.laplace(1, 1, runs)), PureDP(1.0)),
    "Gaussian": (
        lambda rng, runs: (rng.normal(0, 1, runs), rng.normal(1, 1, runs)),
        ApproxDP(1.0, gaussian_delta(1.0)),
    ),
    "equal": (lambda rng, runs: (rng.normal(0, 1, runs), rng.normal(0, 1, runs)), PureDP(1e-9)),
}


@pytest.mark.grid
@pytest.mark.parametrize("name", BOUNDARY)
def test_the_bound_is_above_the_truth_with_at_most_the_stated_probability(name: str) -> None:
    """400 audits of 60 runs at β = 0.3, and 100 of 300: valid ones fail this with probability below 1e-4 each."""
    draw, claim = BOUNDARY[name]
    for runs, audits in ((60, 400), (300, 100)):
        alarms = 0
        for seed in range(audits):
            without, inside = (side.tolist() for side in draw(np.random.default_rng([seed, runs]), runs))
            found = bet(without, inside, claim, confidence=0.7, **OPTIONS)
            alarms += found.bound.value > found.limit
        assert alarms <= stats.binom.isf(1e-4, audits, 0.3)


def test_estimates_are_made_before_the_outputs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs are their own places, so that those that an estimate was made from are known."""
    told: list[list[float]] = []

    def fitted(on_d: Any, on_d_prime: Any, score: Any) -> Any:
        told.append(list(on_d))
        assert on_d == on_d_prime
        return fitted_likelihood_ratios(on_d, on_d_prime, score)

    monkeypatch.setattr("dpassay.audits.games.distinguishing_bets.fitted_likelihood_ratios", fitted)
    places = [float(place) for place in range(60)]
    assert bet(places, places, PureDP(0.1), confidence=0.95, **OPTIONS).bound.value == 0
    assert told == [places[:start] for start in (10, 14, 20, 28, 40, 56)]


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_wrong_estimates_raise_no_false_alarms(factor: float, delta: float) -> None:
    """2000 audits of 200 runs of a mechanism at its boundary, with estimates that are `factor` times the true ratio."""
    rng, hit = np.random.default_rng(7), 1 / (1 + math.e)
    ratios = np.array([-4.0, -1.0, 1.0, 4.0]) * factor
    on_d = np.array([delta, (1 - delta) * (1 - hit), (1 - delta) * hit, 0])
    seen = counted(on_d, on_d[::-1], ratios)
    draws = [rng.multinomial(200, law, 2000).astype(float) for law in (on_d, on_d[::-1])]
    gains = [
        float(log_gains(seen, counted(without, inside, ratios), np.array([1.0]), delta)[0])
        for without, inside in zip(*draws, strict=True)
    ]
    assert np.sum(np.array(gains) >= math.log(1 / 0.1)) <= stats.binom.isf(1e-4, 2000, 0.1)


@pytest.mark.parametrize(("runs", "delta", "confidence"), [(50, 0.0, 0.95), (500, 1e-5, 1 - 1e-6), (500, 0.05, 0.95)])
def test_no_outputs_show_more_than_the_ceiling(runs: int, delta: float, confidence: float) -> None:
    """Perfect outputs with estimates that know it come within a step of the grid; nothing goes beyond."""
    epsilons = grid(delta=delta, confidence=confidence, runs=runs)
    ceiling = most_shown(runs, delta=delta, confidence=confidence)
    ratios = [-160 * LEVEL, 160 * LEVEL]
    perfect = counted([float(runs), 0.0], [0.0, float(runs)], ratios)
    wealth = ScoreWealth(epsilons, delta)
    wealth.update({"": (perfect, perfect)})
    bound = wealth.bound(confidence, runs, "add_remove")
    assert bound.ceiling == ceiling
    assert ceiling - 0.011 <= bound.value <= ceiling
    assert most_shown(runs, delta=0.999, confidence=confidence) == 0


def test_a_claim_is_among_the_epsilons_that_are_tested() -> None:
    epsilons = grid(delta=0.0, confidence=0.95, runs=500, claimed=0.123456)
    assert 0.123456 in epsilons
    assert np.diff(epsilons)[np.searchsorted(epsilons, 0.123456)] < 0.001
    assert epsilons[0] == 0
    assert (np.diff(epsilons) > 0).all()


def test_the_power_is_about_what_is_stated() -> None:
    """150 audits of Gaussian noise of the stated size: a share of 0.5 gives 0.35 to 0.65 but with probability 2e-4; and
    estimates may cost a little more, or less, than was allowed for."""
    runs, confidence = 600, 0.999
    found = detectable_by_bets(540, 1.0, delta=1e-5, confidence=confidence, learning=math.log(2) + math.log(10))
    assert found.noise is not None
    refuted = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        without, inside = (rng.normal(move, found.noise, runs).tolist() for move in (0, 1))
        result = bet(without, inside, ApproxDP(1.0, 1e-5), confidence=confidence, **OPTIONS)
        refuted += result.bound.value > 1
    assert 0.35 * 150 <= refuted <= 0.8 * 150


def test_more_runs_detect_less() -> None:
    results = [detectable_by_bets(runs, 1.0, delta=1e-5, confidence=1 - 1e-6) for runs in (20, 2000, 20_000)]
    assert results[0].noise is None or results[0].noise < results[1].noise  # type: ignore[operator]
    assert 1.0 < results[1].noise < results[2].noise < 3.7304  # type: ignore[operator]
    assert 1.0 < results[2].epsilon < results[1].epsilon  # type: ignore[operator]
    assert results[1].to_json()["chance"] == 0.5
    blind = detectable_by_bets(3, 5.0, delta=0.0, confidence=1 - 1e-6)
    assert (blind.noise, blind.epsilon) == (None, None)
    assert "less than 50 % power" in blind.sentence()
