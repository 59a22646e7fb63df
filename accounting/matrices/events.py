"""The events of matrix mechanisms."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import ArrayLike

from dpassay.accounting.matrices.participation import Separated
from dpassay.accounting.matrices.sensitivities import Sensitivity, sensitivity
from dpassay.accounting.matrices.strategies import Toeplitz, matrix_of
from dpassay.base import validate


def matrix_event(noise_multiplier: float, moved: Sensitivity) -> DpEvent:
    """The event of a release of Cx + σZ: a Gaussian with noise multiplier σ over the sensitivity, rounded down.

    It bounds the release from above. Where the sensitivity is not exact, no record attains it, and the lower end of an
    interval of the event says nothing of the release.

    Args:
        noise_multiplier: σ over the largest norm of a record's contribution to a step, at least 0.
        moved: the sensitivity of C.

    Proof: docs/proofs/matrices.md, Theorem 1.
    """
    validate.non_negative(noise_multiplier=noise_multiplier)
    if not moved.value:
        return dp_event.NoOpDpEvent()
    return dp_event.GaussianDpEvent(_quotient(noise_multiplier, moved.value))


def cyclic_poisson_event(
    noise_multiplier: float, strategy: ArrayLike | Toeplitz, sampling_probability: float, groups: int | None = None
) -> DpEvent:
    """The event of a banded strategy whose batches are Poisson samples of groups of records, in turn.

    Records are divided into groups, not by their values. Step s draws each record of group s mod b, independently. A
    strategy of at most b bands then costs as much as ⌈n/b⌉ sampled Gaussians, all columns as large as the largest.

    Args:
        noise_multiplier: σ over the largest norm of a record's contribution to a step, at least 0.
        strategy: C, lower triangular.
        sampling_probability: of a record of the group whose turn it is.
        groups: b, by default as many as the strategy has bands.

    Raises:
        ValueError: if C is not lower triangular or has more than b bands.

    Proof: docs/proofs/sampling.md, Theorem 5.
    """
    bands, steps = bands_of(strategy)
    groups = bands if groups is None else validate.integer(minimum=1, groups=groups)
    if bands > groups:
        raise ValueError(f"cyclic samples of {groups} groups need a strategy of at most {groups} bands, not {bands}")
    rate = float(validate.probability(sampling_probability=sampling_probability))
    block = matrix_event(noise_multiplier, sensitivity(strategy, Separated(1)))
    if isinstance(block, dp_event.NoOpDpEvent):
        return block
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, block), -(-steps // groups))


def bands_of(strategy: ArrayLike | Toeplitz) -> tuple[int, int]:
    """The number of bands of a lower triangular strategy, its diagonal included, and of its steps."""
    if isinstance(strategy, Toeplitz):
        return strategy.bands, strategy.steps
    matrix = matrix_of(strategy)
    rows, columns = np.nonzero(matrix)
    if matrix.shape[0] != matrix.shape[1] or (rows < columns).any():
        raise ValueError("cyclic samples need a square, lower triangular strategy")
    return (int((rows - columns).max()) + 1 if rows.size else 1), matrix.shape[1]


def _quotient(noise_multiplier: float, by: float) -> float:
    value = noise_multiplier / by
    return max(0.0, math.nextafter(value, 0.0)) if noise_multiplier else 0.0
