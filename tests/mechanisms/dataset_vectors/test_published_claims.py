"""What the paper on dataset vectors and its code claim, and what holds: laws in 60 digits, beside our accountants.

The paper's example: ε = 5 of which .1 is for the examples, δ = 1e-5 of which 1e-6 is; 500 records of a label are drawn
without replacement from its n, so the vectors have (4.9, 9e-6).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from sampled_gaussians import delta_of, epsilon_of, mu_for
from scipy import optimize

from dpassay.accounting import account, gaussian
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors

EXAMPLES, EPSILON, DELTA, DRAWN = 0.1, 4.9, 9e-6, 500
IMDB, YELP = 12_500, 280_000
"""Records of a label: 25 000 and 560 000 reviews with two labels."""
BIORXIV = (12_175, 4_989, 2_436, 5_574)


def accounted(mu: float, delta: float, records: int | None = None, drawn: int = DRAWN) -> float:
    """By the lattice: a release that moves by μ standard deviations if a record is replaced."""
    event: DpEvent = dp_event.GaussianDpEvent(2 / mu)  # accountants double what a unit contributes
    if records is not None:
        event = dp_event.SampledWithoutReplacementDpEvent(records, drawn, event)
    return account(event, adjacency="replace_one", delta=delta, method="lattice").value


def test_the_classical_noise_for_all_epsilon() -> None:
    """Theorem 4.1 states σ = Δ√(2 ln(1.25/δ))/ε "for all ε > 0": false above 8.4198."""

    def delta(epsilon: float) -> float:
        return delta_of(epsilon / math.sqrt(2 * math.log(1.25e5)), epsilon)

    assert delta(10) == pytest.approx(2.265374e-5, rel=1e-6)
    assert optimize.brentq(lambda e: delta(e) - 1e-5, 5, 10) == pytest.approx(8.4198, abs=1e-4)
    assert accounted(10 / math.sqrt(2 * math.log(1.25e5)), 2.265374e-5) == pytest.approx(10, abs=1e-3)


def test_layer_by_layer_is_sound_and_loose() -> None:
    """Four layers at (5, 1e-5): classical noise and basic composition, over one joint Gaussian."""
    classical = 4 * math.sqrt(2 * math.log(1.25 / (1e-5 / 4))) / 5
    assert classical / (2 / mu_for(5, 1e-5)) == pytest.approx(2.2976, abs=1e-4)
    mechanism = DatasetVectors(noise_multiplier=1 / mu_for(5, 1e-5), records=10, shots=0)
    assert account(mechanism.plan(), adjacency="replace_one", delta=1e-5).value == pytest.approx(5, abs=1e-3)


@pytest.mark.parametrize("records", [IMDB, YELP])
def test_amplification_of_one_release_is_tight(records: int) -> None:
    """Theorem 4.2, δ′ = qδ at log(1 + q(e^ε − 1)): the accountant's answer is that number."""
    mu = mu_for(EPSILON, DELTA, DRAWN / records)
    assert accounted(mu, DELTA, records) == pytest.approx(EPSILON, rel=1e-4)
    sampled = gaussian.sampled_epsilon(mu, DELTA, sample_size=DRAWN, records=records)
    assert sampled == pytest.approx(EPSILON, rel=1e-6)


def test_a_histogram_moves_by_the_root_of_two() -> None:
    """Under substitution; noise for 1 at (.1, 1e-5) gives 25 times that δ."""
    mu = mu_for(0.1, 1e-5)
    assert delta_of(mu * math.sqrt(2), 0.1) == pytest.approx(2.540668e-4, rel=1e-6)
    mechanism = DatasetVectors(noise_multiplier=1, shots_noise_multiplier=1 / mu_for(0.1, 1e-6), records=10)
    assert mechanism.votes_scale == pytest.approx(math.sqrt(2) / mu_for(0.1, 1e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("records", "half", "known", "both"), [(IMDB, 17.2848, 9.7642, 23.563), (YELP, 25.505, 16.476, 42.025)]
)
def test_half_of_the_noise_and_a_known_sample(records: int, half: float, known: float, both: float) -> None:
    """C/n for 2C/n; one public seed for sample and noise, so the sample does not amplify; and both."""
    mu = mu_for(EPSILON, DELTA, DRAWN / records)
    for result, expected in (
        (epsilon_of(2 * mu, DELTA, DRAWN / records), half),
        (epsilon_of(mu, DELTA), known),
        (epsilon_of(2 * mu, DELTA), both),
    ):
        assert result + EXAMPLES == pytest.approx(expected, abs=1e-3)
    assert accounted(2 * mu, DELTA, records) + EXAMPLES == pytest.approx(half, rel=1e-3)
    published = DatasetVectors(
        noise_multiplier=1 / mu, records=records, sample=DRAWN, shots=0, variant="as_published"
    ).plan()
    assert account(published, adjacency="replace_one", delta=DELTA).value + EXAMPLES == pytest.approx(both, rel=1e-3)


def test_the_share_of_the_first_label_for_all() -> None:
    mu = mu_for(EPSILON, DELTA, DRAWN / BIORXIV[0])
    results = [epsilon_of(mu, DELTA, DRAWN / records) + EXAMPLES for records in BIORXIV]
    np.testing.assert_allclose(results, [5, 6.344, 7.410, 6.178], atol=1e-3)
    labels = tuple("abcd")
    mechanism = DatasetVectors(
        noise_multiplier=1 / mu, records=sum(BIORXIV), records_by_label=BIORXIV, labels=labels, sample=DRAWN, shots=0
    )
    bound = account(mechanism.plan(), adjacency="replace_one", delta=DELTA).value
    assert bound + EXAMPLES == pytest.approx(7.410, rel=1e-3)


def test_votes_and_vectors_together() -> None:
    """Votes of (.1, 1e-6) leave μ = 1.120903 for the vectors of (5, 1e-5); if ε and δ are split, 1.096815."""
    votes = mu_for(0.1, 1e-6)
    vectors = math.sqrt(mu_for(5, 1e-5) ** 2 - votes**2)
    assert vectors == pytest.approx(1.120903, abs=1e-6)
    assert mu_for(EPSILON, DELTA) == pytest.approx(1.096815, abs=1e-6)
    mechanism = DatasetVectors(noise_multiplier=1 / vectors, shots_noise_multiplier=1 / votes, records=10)
    assert account(mechanism.plan(), adjacency="replace_one", delta=1e-5).value == pytest.approx(5, abs=1e-3)
