"""The many-runs game: how often it errs on mechanisms at the boundary of their claim, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from property_settings import number
from scipy import stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, ExPostDP, Guarantee, PureDP, SecretProtection
from dpassay.attacks.black_box.distinguishing import fitted_scores
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.games.distinguishing_choice import DetectionLimit, detection_limit, epsilon_limits, training_runs
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.binomial import epsilon_clopper_pearson

Draw = Callable[[np.random.Generator, int], tuple[list[Any], list[Any]]]
E = math.e
GAUSSIAN_DELTA = float(stats.norm.sf(0.5) - E * stats.norm.sf(1.5))  # of N(1, 1) against N(0, 1) at ε = 1


def randomised_response(g: np.random.Generator, n: int) -> tuple[list[Any], list[Any]]:
    return (g.random(n) < 1 / (1 + E)).tolist(), (g.random(n) < E / (1 + E)).tolist()


def laplace(g: np.random.Generator, n: int, scale: float = 1.0) -> tuple[list[Any], list[Any]]:
    return g.laplace(0, scale, n).tolist(), g.laplace(1, scale, n).tolist()


def gaussian(g: np.random.Generator, n: int, sigma: float = 1.0) -> tuple[list[Any], list[Any]]:
    return g.normal(0, sigma, n).tolist(), g.normal(1, sigma, n).tolist()


def audited(outputs: tuple[Any, Any], guarantee: Guarantee, **options: Any) -> AuditResult:
    return distinguishing_audit(*outputs, guarantee=guarantee, adjacency=Adjacency.ADD_REMOVE, **options)


BOUNDARY: dict[str, tuple[Draw, Guarantee]] = {
    "randomised response": (randomised_response, PureDP(1.0)),
    "Laplace": (laplace, PureDP(1.0)),
    "Gaussian": (gaussian, ApproxDP(1.0, GAUSSIAN_DELTA)),
    "Gaussian as a curve": (gaussian, GDP(1.0)),
}


def false_alarms(name: str, repetitions: int, runs: int) -> int:
    """How often the whole procedure, training and choice included, refutes a claim that is met with equality."""
    draw, guarantee = BOUNDARY[name]
    g = np.random.default_rng(2026)
    return sum(audited(draw(g, runs), guarantee).details["refuted"] for _ in range(repetitions))


@pytest.mark.grid
@pytest.mark.parametrize("name", BOUNDARY)
def test_false_alarms_are_within_what_beta_allows(name: str) -> None:
    """A procedure that errs more often than 5% fails here; one at 5% does with probability 1e-4 a mechanism."""
    repetitions, runs = number(150, 2000), number(160, 400)
    assert false_alarms(name, repetitions, runs) <= stats.binom.isf(1e-4, repetitions, 0.05)


def test_to_fit_and_test_on_the_same_runs_errs_nearly_always() -> None:
    """What the split is for, and that counting alarms can fail: two equal laws in 40 coordinates, claim ε = 0."""
    g, naive, split = np.random.default_rng(0), 0, 0
    for _ in range(20):
        on_d, on_d_prime = g.normal(size=(2, 160, 40))
        sides = on_d.tolist(), on_d_prime.tolist()
        score = fitted_scores(*sides)[0]
        fp, tp = (int((score.of(side) >= 0).sum()) for side in sides)
        naive += epsilon_clopper_pearson(tp, 160 - tp, fp, 160 - fp, delta=0.0, confidence=0.95).value > 0
        split += audited((on_d, on_d_prime), PureDP(0.0)).details["refuted"]
    assert split <= stats.binom.isf(1e-4, 20, 0.05) < naive


@pytest.mark.parametrize(
    ("outputs", "guarantee", "score"),
    [
        (lambda g: randomised_response(g, 2000), PureDP(0.5), "counted outcomes"),
        (lambda g: laplace(g, 2000, 0.5), PureDP(1.0), "the output"),
        (lambda g: gaussian(g, 2000, 0.5), GDP(1.0), "output"),
        (lambda g: gaussian(g, 2000, 0.5), ZCDP(0.5), "output"),
        pytest.param(lambda g: gaussian(g, 2000, 0.5), RDP(4.0, 0.5), "output", marks=pytest.mark.slow),
        (lambda g: gaussian(g, 2000, 0.5), ApproxDP(1.0, 1e-5), "output"),
        (lambda g: (g.normal(size=(2000, 5)), g.normal(size=(2000, 5)) * 1.5), ZCDP(0.1), "quadratic"),
        (lambda g: (g.choice(["a", "b"], 2000), g.choice(["a", "b", "c"], 2000)), PureDP(1.0), "counted"),
    ],
)
def test_what_leaks_twice_as_much_is_refuted(outputs: Any, guarantee: Guarantee, score: str) -> None:
    """At confidence 1 − 1e-6. Each of these is found with a probability that leaves the seed no room to matter."""
    result = audited(outputs(np.random.default_rng(1)), guarantee, confidence=1 - 1e-6)
    assert result.details["refuted"]
    assert "it is refuted" in result.conclusion
    assert score in result.attack
    (bound,) = result.bounds
    assert bound.rigor is Rigor.FINITE_SAMPLE
    assert bound.private
    assert bound.value <= (bound.ceiling or 0.0)


def test_what_is_met_is_not_refuted_and_the_ceiling_is_said() -> None:
    result = audited(laplace(np.random.default_rng(1), 2000), PureDP(1.0), confidence=1 - 1e-6)
    assert not result.details["refuted"]
    assert 0.4 < result.bounds[0].value <= 1.0
    assert (
        "allows 1: it is not refuted. A test of this size has 50 % power to refute the claim if " in result.conclusion
    )
    assert result.conclusion.endswith("A test without errors would have shown only 4.5643.")
    assert result.trials == 2800
    assert result.details["training_runs"] == 600
    few = audited(laplace(np.random.default_rng(1), 20), PureDP(3.0))
    assert "this many runs can show at most 1.1991," in few.conclusion
    assert few.conclusion.endswith("the result says nothing about the claim.")


def test_the_exact_ratio_as_a_score() -> None:
    """With the best test there is: 2800 tested runs show ln(rate/rate) with a standard deviation of .033, less twice
    that for the confidence; and never more than the truth, 1, but for one sample in twenty."""
    outputs = randomised_response(np.random.default_rng(1), 4000)
    result = audited(outputs, PureDP(0.9), score=lambda told: 1.0 if told else -1.0)
    assert 0.85 < result.bounds[0].value <= 1.0
    assert result.attack.endswith("if the given score ≥ 0")
    with pytest.raises(ValueError, match="the score of an output is NaN"):
        audited(outputs, PureDP(0.9), score=lambda told: math.nan)


def test_betting_shows_about_the_same() -> None:
    outputs = laplace(np.random.default_rng(1), 1000, 0.5)
    result = audited(outputs, PureDP(1.0), statistic="sequential")
    assert result.details["refuted"]
    assert result.bounds[0].method == "sequential"
    assert result.statistics == ("sequential",)


def test_outputs_without_noise() -> None:
    g = np.random.default_rng(0)
    varied = g.normal(size=400).tolist()
    fixed = audited(([1.5] * 400, [2.5] * 400), PureDP(1.0))
    assert fixed.bounds[0].value == fixed.bounds[0].ceiling
    assert "it comes from a fixed seed" in fixed.conclusion
    assert "the runs are not independent" in fixed.conclusion
    item = audited(([1.5] * 400, varied), PureDP(1.0))
    assert item.details["refuted"]
    assert item.details["notes"] == ["Every run on D gave the same output; the runs on its neighbour did not."]
    none = audited(([1.5] * 400, [1.5] * 400), PureDP(1.0))
    assert none.bounds[0].value == 0.0
    assert none.conclusion.endswith("this pair tests nothing.")
    assert audited((varied, varied[::-1]), PureDP(1.0)).details["notes"] == []


def test_the_bound_carries_adjacency_and_unit() -> None:
    outputs = laplace(np.random.default_rng(1), 100)
    result = distinguishing_audit(*outputs, guarantee=PureDP(1.0), adjacency="replace_one", unit=Unit.parse("user"))
    assert result.bounds[0].adjacency is Adjacency.REPLACE_ONE
    assert str(result.bounds[0].unit) == "user"


@pytest.mark.parametrize("guarantee", [ExPostDP(1.0), SecretProtection(0.1, 0.2)])
def test_claims_that_many_runs_cannot_test_are_refused(guarantee: Guarantee) -> None:
    with pytest.raises(ValueError, match="says nothing about how often outputs occur"):
        audited(laplace(np.random.default_rng(1), 100), guarantee)


def test_bad_numbers_of_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="the same number of runs, not 3 and 4"):
        audited(([1.0] * 3, [1.0] * 4), PureDP(1.0))
    with pytest.raises(ValueError, match="10 runs on each side are too few"):
        audited(([1.0] * 10, [1.0] * 10), PureDP(1.0))
    assert training_runs(11) == 4
    with pytest.raises(ValueError, match="statistic must be one of"):
        audited(([1.0] * 20, [1.0] * 20), PureDP(1.0), statistic="max")


def test_what_reaches_the_claim_and_not_beyond_refutes_nothing() -> None:
    assert not DetectionLimit(delta=0.0, ceiling=1.0, limit=1.0).can_refute
    assert DetectionLimit(delta=0.0, ceiling=math.nextafter(1.0, 2.0), limit=1.0).can_refute


def test_reach_is_what_a_test_without_an_error_shows() -> None:
    result = detection_limit(PureDP(1.0), 2000, confidence=1 - 1e-6)
    perfect = audited(([0] * 2000, [1] * 2000), PureDP(1.0), confidence=1 - 1e-6)
    assert result.ceiling == perfect.bounds[0].value == perfect.bounds[0].ceiling
    assert result.can_refute
    assert not detection_limit(PureDP(5.0), 2000, confidence=1 - 1e-6).can_refute
    # The ε that μ-GDP allows at a δ, against the curve δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).
    for delta, epsilon in epsilon_limits(GDP(1.0)):
        curve = stats.norm.cdf(0.5 - epsilon) - math.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon)
        assert curve == pytest.approx(delta, rel=1e-6) or (epsilon == 0 and curve <= delta)
