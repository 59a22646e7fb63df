"""Scores of canaries in a fine-tuned table: likelihood ratios against densities, and distances by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.two_stage.membership import SpikeScores, distances
from dpassay.data.table_schema import Schema
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.training import Spikes


def training(adjacency: Adjacency, noise: float, count: int) -> Any:
    """What a score needs of a training: its mechanism, and where spikes are."""
    mechanism = TwoStage(noise_multiplier=noise, records=100, batch_size=20, steps=9, clip=2.0, adjacency=adjacency)
    return SimpleNamespace(mechanism=mechanism, spikes=Spikes((1,) * count))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_score_is_the_sum_of_log_likelihood_ratios(swapped: bool) -> None:
    """By scipy's densities: of the mixture with the spike, over that without it, or with its opposite."""
    adjacency = Adjacency.REPLACE_ONE if swapped else Adjacency.ADD_REMOVE
    item = training(adjacency, 1.5, 4)
    sigma = 1.5 * (2 if swapped else 1)
    scores, rng, size = SpikeScores(4, swapped=swapped), np.random.default_rng(0), 40
    expected = np.zeros(4)
    for step in range(3):
        released = rng.normal(size=size)
        scores.see(step, released, item)
        x = released[[0, 10, 20, 30]] * 20 / 2.0  # in units of the clip: a mean over 20 rows, C = 2

        def density(x: Any, sign: int) -> Any:
            plain, moved = stats.norm.pdf(x, 0, sigma), stats.norm.pdf(x, sign, sigma)
            return 0.8 * plain + 0.2 * moved

        other = density(x, -1) if swapped else stats.norm.pdf(x, 0, sigma)
        expected += np.log(density(x, 1) / other)
    assert scores.scores == pytest.approx(expected, rel=1e-4)


def test_without_noise_a_score_is_what_was_released() -> None:
    item = training(Adjacency.ADD_REMOVE, 0.0, 2)
    scores = SpikeScores(2, swapped=False)
    scores.see(0, np.array([0.1, 9.0, 0.0, 9.0]), item)
    assert scores.scores == pytest.approx([0.1 * 20 / 2.0, 0.0])


def test_distances_are_those_of_gower() -> None:
    schema = Schema.model_validate(
        {
            "columns": [
                {"name": "age", "type": "number", "low": 0, "high": 100},
                {"name": "sex", "type": "category", "values": ["f", "m"]},
            ]
        }
    )
    result = distances([("10", "f"), ("90", "m")], [("20", "f"), ("70", "f")], schema)
    assert result == pytest.approx([(0.1 + 0) / 2, (0.2 + 1) / 2])
