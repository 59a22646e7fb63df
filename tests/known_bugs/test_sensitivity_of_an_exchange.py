"""A mean of n clipped vectors moves by 2C/n when a record is exchanged. The noise is for C/n."""

from __future__ import annotations

import functools

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, at_least, claimed, on_the_page, redrawn, told_apart, verdict
from numpy.typing import NDArray
from scipy import optimize

from dpassay.accounting import ApproxDP, gaussian
from dpassay.accounting.bounds import Bound
from dpassay.accounting.lattice.accountant import dominating_pair
from dpassay.attacks.black_box.enumerated_neighbors import neighbors
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings

CLAIM = ApproxDP(5.0, 1e-5)
CLIP = 1.0
DATA, NEIGHBOR = [1.0] * 8, [1.0] * 7 + [-1.0]
REPLACE = "replace_one"


def mechanism(*, bug: bool) -> Mechanism[list[float]]:
    multiplier = gaussian.analytic_noise_multiplier(CLAIM.epsilon, CLAIM.delta)  # σ/Δ

    def run(data: list[float], recorder: Recorder) -> NDArray[np.float64]:
        size = len(data)  # public under replace_one
        sensitivity = CLIP / size if bug else 2 * CLIP / size
        # Half of what an exchange moves is one unit's contribution, which the event counts in.
        event = dp_event.GaussianDpEvent(2 * multiplier)
        clipped = np.clip(data, -CLIP, CLIP)
        return recorder.gaussian(clipped.sum() / size, event, scale=sensitivity * multiplier)

    return run


def test_record_and_replay_finds_twice_the_declared_sensitivity() -> None:
    near = list(neighbors(DATA, [-1.0, 0.5, 1.0], adjacency=REPLACE))
    plan = dp_event.GaussianDpEvent(2 * gaussian.analytic_noise_multiplier(5.0, 1e-5))
    (result,) = record_replay_findings(mechanism(bug=True), DATA, near, adjacency=REPLACE, plan=plan)
    assert (result.kind, result.measured) == ("sensitivity", 2 * CLIP / 8)
    assert result.declared == pytest.approx(CLIP / 8)
    assert not record_replay_findings(mechanism(bug=False), DATA, near, adjacency=REPLACE, plan=plan)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    return tuple(
        told_apart(
            redrawn(mechanism(bug=bug)),
            DATA,
            NEIGHBOR,
            CLAIM,
            adjacency=REPLACE,
            runs=200_000,
            score=lambda released: -released,
        )
        for bug in (True, False)
    )


def test_the_two_data_sets_are_told_apart() -> None:
    """The exact ε of this pair at δ = 1e-5 is that of a Gaussian release that moves by 2/.891868 standard deviations:
    11.5211, by the closed form."""
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value < gaussian_epsilon(2 / gaussian.analytic_noise_multiplier(5.0, 1e-5), 1.0) < 11.5212
    assert verdict(CLAIM, right) == "UNPROVEN"


def gaussian_epsilon(mu: float, rate: float) -> float:
    """ε at δ = 1e-5 of a Gaussian release of a part of the data, a share `rate` without replacement, by mpmath:
    δ = q·δ_μ(log(1 + (e^ε − 1)/q)), δ_μ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""

    def excess(epsilon: float) -> float:
        inner = mpmath.log(1 + mpmath.expm1(epsilon) / rate)
        delta = mpmath.ncdf(mu / 2 - inner / mu) - mpmath.exp(inner) * mpmath.ncdf(-mu / 2 - inner / mu)
        return float(rate * delta - mpmath.mpf("1e-5"))

    return float(optimize.brentq(excess, 1, 40, xtol=1e-13))


def imdb(*, bug: bool) -> float:
    """1000 of 25000 reviews at ε = 4.9, and .1 for the examples before: what the accountant of the audited event says,
    with the sensitivity that record and replay found."""
    multiplier = 1 / 1.948575761203698  # σ/Δ for 4.9
    event = dp_event.GaussianDpEvent(2 * multiplier / (2 if bug else 1))
    result = dominating_pair(dp_event.SampledWithoutReplacementDpEvent(25_000, 1000, event), REPLACE).epsilon(1e-5)
    return result.lower + 0.1


def test_what_becomes_of_a_published_claim_of_five() -> None:
    """μ = 1.948576 is (4.9, 1e-5) at q = .04; 2μ is 17.23, and with .1 for the examples 17.3."""
    for bug, times in ((False, 1), (True, 2)):
        exact = gaussian_epsilon(1.948575761203698 * times, 0.04)
        assert imdb(bug=bug) == pytest.approx(exact + 0.1, abs=1e-3)
    assert round(imdb(bug=False), 6) == 5.0
    assert round(imdb(bug=True), 1) == 17.3


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "sensitivity C/n for a mean under replace_one, where it is 2C/n",
        'released code of "EPSVec: Efficient and Private Synthetic Data Generation via Dataset Vectors", whose theorem '
        "has 2C/n",
        "record and replay; distinguishing",
        f"{claimed(CLAIM)}: all records; 4% of them, and examples",
        f"{at_least(sampled()[0])}; {imdb(bug=True):.1f}",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
