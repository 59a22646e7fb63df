"""Batches of a shuffled epoch, accounted as Poisson samples."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from exhibits import Exhibit, Floats, at_least, claimed, on_the_page, told_apart, verdict
from published_rows import lower
from scipy import optimize, special

from dpassay.accounting import ApproxDP
from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.recorder import Mechanism, Recorder
from dpassay.audits.games.replay.record_replay import record_replay_findings
from dpassay.base.number_format import format_lower

CLAIM = ApproxDP(1.0, 1e-5)
RECORDS, BATCH, EPOCHS = 30_000, 32, 10
BATCHES = RECORDS // BATCH  # of an epoch; the half batch that is left is not needed to show anything
STEPS = RECORDS * EPOCHS // BATCH
_MAX_TIMES = 12  # Poisson samples of an epoch that a record is in: one on average, and more than this once in 10¹⁰


def descent(*, bug: bool) -> Mechanism[list[tuple[int, float]]]:
    """Noisy sums of gradients over 2 epochs of 8 batches of 64 records."""
    rate, inner = 1 / 8, dp_event.GaussianDpEvent(1.0)

    def run(data: list[tuple[int, float]], recorder: Recorder) -> list[float]:
        names, shuffler = [name for name, _ in data], np.random.default_rng()
        sums = []
        for step in range(16):
            if step % 8 == 0:
                order = shuffler.permutation(len(data))
            own = np.isin(np.arange(len(data)), order[step % 8 :: 8]) if bug else None
            flags = recorder.sample(names, dp_event.PoissonSampledDpEvent(rate, inner), included=own)
            total = sum(gradient for (_, gradient), flag in zip(data, flags, strict=True) if flag)
            sums.append(float(recorder.gaussian(total, inner, scale=1.0)))
        return sums

    return run


def test_record_and_replay_finds_that_batches_are_no_poisson_samples() -> None:
    """All 32 batches of two runs have 8 records, which under Poisson sampling has probability 6e-27 (Σ_s f(s)³²), and
    each record is in exactly 2 of 16 batches of a run. The mended one is accused with probability 1e-6."""
    data = [(i, 1.0) for i in range(64)]
    near = [data[1:], [*data, (64, -1.0)]]
    plan = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(1 / 8, dp_event.GaussianDpEvent(1.0)), 16)
    result = record_replay_findings(descent(bug=True), data, near, adjacency="add_remove", plan=plan)
    assert [(finding.kind, finding.measured) for finding in result] == [
        ("sampling", "32 of 32 batches have size 8"),
        ("sampling", "128 of 128 units are in, of 16 batches, 2"),
    ]
    rng = np.random.default_rng(1)
    assert not record_replay_findings(descent(bug=False), data, near, adjacency="add_remove", plan=plan, rng=rng)


@functools.cache
def noise() -> float:
    """σ for the claim, by Rényi divergences of Poisson samples."""

    def excess(sigma: float) -> float:
        event = dp_event.PoissonSampledDpEvent(BATCH / RECORDS, dp_event.GaussianDpEvent(sigma))
        return float(RdpAccountant().compose(event, STEPS).get_epsilon(CLAIM.delta)) - CLAIM.epsilon

    return float(optimize.brentq(excess, 0.6, 1.5, xtol=1e-9))


def largest_sums(mean: float, runs: int, rng: np.random.Generator) -> Floats:
    """The largest noisy sums of an epoch over σ, added up, shape (runs,), where others' gradients are −1 and known.

    Their share is subtracted, so that a batch is 0 but for noise, and the one with the record in question has `mean`:
    2 where its gradient is 1, 1 where it is the null record's 0. Where that batch is does not change the maximum.
    """
    own = rng.normal(size=(runs, EPOCHS)) + mean / noise()
    # The largest of so many normal numbers, by the inverse of its distribution function.
    others = special.ndtri_exp(np.log(rng.random((runs, EPOCHS))) / (BATCHES - 1))
    return np.asarray(np.maximum(own, others).sum(axis=1))


def poisson_sums(mean: float, runs: int, rng: np.random.Generator) -> Floats:
    """The same for Poisson samples, where a record is in some batch of an epoch or in several or in none. The others'
    gradients are 0, because the number of others in a batch is random."""
    times = rng.binomial(BATCHES, BATCH / RECORDS, size=(runs, EPOCHS, 1))
    own = rng.normal(size=(runs, EPOCHS, _MAX_TIMES)) + mean / noise()
    own = np.where(np.arange(_MAX_TIMES) < times, own, -np.inf).max(axis=2)
    others = special.ndtri_exp(np.log(rng.random((runs, EPOCHS))) / (BATCHES - times[..., 0]))
    return np.asarray(np.maximum(own, others).sum(axis=1))


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """With the record as the null record, and with its gradient."""
    options: dict[str, Any] = {"adjacency": "zero_out", "runs": 60_000, "score": float}
    return (
        told_apart(largest_sums, 1.0, 2.0, CLAIM, **options),
        told_apart(poisson_sums, 0.0, 1.0, CLAIM, **options),
    )


def test_the_two_data_sets_are_told_apart() -> None:
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert verdict(CLAIM, right) == "UNPROVEN"


def exact(sigma: float) -> float:
    """A lower bound on ε at δ: that of the ten maxima, as `dpassay claims 002-2` computes it."""
    return lower("002-2", noise_multiplier=sigma)


def test_what_a_calibrated_epsilon_of_one_is_worth() -> None:
    """σ = .91327 for ε = 1 at δ = 1e-5, and at least 6.51 in truth."""
    assert noise() == pytest.approx(0.91327, abs=1e-6)
    assert 6.509 < exact(noise()) < exact(0.913) < 6.52
    assert sampled()[0].value < exact(noise())


def test_the_law_of_the_maximum_is_that_of_so_many_sums() -> None:
    """5000 maxima by all of their sums against the formula: Kolmogorov and Smirnov's distance exceeds 2.23/√5000 with
    probability 1e-4."""
    rng = np.random.default_rng(3)
    sums = rng.normal(size=(5000, 60))
    sums[np.arange(5000), rng.integers(0, 60, 5000)] += 2.0
    result = np.sort(sums.max(axis=1))
    law = np.exp(59 * special.log_ndtr(result) + special.log_ndtr(result - 2.0))
    assert np.abs(law - (np.arange(5000) + 0.5) / 5000).max() < 2.23 / 5000**0.5


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "shuffled batches accounted as Poisson samples: 30000 records, batches of 32, 10 epochs, zero_out",
        'Theorem A.7 of "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators" '
        "with shuffled batches, in the worst case; a particular run is unproven",
        "record and replay; distinguishing; exact law of the maxima",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}; {format_lower(exact(noise()), 2)}",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
