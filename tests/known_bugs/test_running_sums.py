"""Private points are assigned to running sums of clusters, so that one point more moves many others."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from exhibits import Exhibit, at_least, claimed, on_the_page, redrawn, told_apart, verdict
from numpy.typing import NDArray

from dpassay.accounting import ApproxDP, gaussian
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings

CLAIM = ApproxDP(1.0, 1e-5)
SCALE = gaussian.analytic_noise_multiplier(CLAIM.epsilon, CLAIM.delta)
EVENT = dp_event.GaussianDpEvent(SCALE)
CENTRES = (-0.6, 0.6)  # of one public point each
DATA = [0.01] * 1000
NEIGHBOR = [-1.0, *DATA]


def mechanism(*, bug: bool) -> Mechanism[list[float]]:
    """Noisy numbers of private points nearest to each centre, by the clusters as they grow or as they were public."""

    def run(data: list[float], recorder: Recorder) -> NDArray[np.float64]:
        sums, counts = list(CENTRES), [0, 0]
        for point in data:
            near = min((0, 1), key=lambda k: abs(point - (sums if bug else CENTRES)[k]))
            sums[near] += point
            counts[near] += 1
        return recorder.gaussian(counts, EVENT, scale=SCALE)

    return run


def exact_counts(points: list[Fraction]) -> list[int]:
    """The assignment to running sums, in rational numbers."""
    sums, counts = [Fraction(-6, 10), Fraction(6, 10)], [0, 0]
    for point in points:
        near = 0 if abs(point - sums[0]) <= abs(point - sums[1]) else 1
        sums[near] += point
        counts[near] += 1
    return counts


def test_record_and_replay_finds_that_one_point_moves_71() -> None:
    """Counts go from (560, 440) to (611, 390), a distance of √(51² + 50²) = 71.4 where 1 is declared. In rational
    numbers, where distances are equal more often than in floats, it is (560, 440) to (611, 390) as well."""
    (result,) = record_replay_findings(mechanism(bug=True), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)
    assert result.kind == "sensitivity"
    assert result.declared == pytest.approx(1.0)
    assert result.measured == pytest.approx((51**2 + 50**2) ** 0.5, rel=1e-12)
    points = [Fraction(1, 100)] * 1000
    assert exact_counts(points) == [560, 440]
    assert exact_counts([Fraction(-1), *points]) == [611, 390]
    assert not record_replay_findings(mechanism(bug=False), DATA, [NEIGHBOR], adjacency="add_remove", plan=EVENT)


@functools.cache
def sampled() -> tuple[Bound, ...]:
    return tuple(
        told_apart(redrawn(mechanism(bug=bug)), DATA, NEIGHBOR, CLAIM, runs=20_000, score=lambda noisy: noisy[0])
        for bug in (True, False)
    )


def test_the_two_data_sets_are_told_apart() -> None:
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value == wrong.ceiling
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "points assigned to running sums of clusters: one more moves 71 others",
        'Algorithm 2 as printed in "Secret-Protected Evolution for Differentially Private Synthetic Text Generation"',
        "record and replay; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, all that so many runs can show",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
