"""Exposure of a canary, in bits: its rank among secrets that were never in the data. It is not a bound on ε.

A larger score means that the model finds a secret more likely (for example, minus its loss).

Source: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer" (2019), sections 4.2 and 4.3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base.arrays import Floats


def exposure_interpolated(canaries: ArrayLike, references: ArrayLike) -> Floats:
    """log₂|R| − log₂ rank, for R the references and the canary itself; ties rank the references first.

    Args:
        canaries: shape (…), scores of canaries.
        references: shape (n,), n ≥ 1, scores of secrets from the distribution of the canaries that were not in the
            data.

    Returns:
        Shape (…), in bits: 0 for a canary that ranks last, log₂(n + 1) for one above all references.

    Raises:
        ValueError: if a score is NaN, or there is no reference.
    """
    scores, ordered = _scores(canaries), np.sort(_references(references, 1))
    ahead = ordered.size - np.searchsorted(ordered, scores, side="left")  # references with a score at least as large
    return np.asarray(np.log2(ordered.size + 1) - np.log2(1 + ahead), dtype=np.float64)


def exposure_extrapolated(canaries: ArrayLike, references: ArrayLike) -> Floats:
    """−log₂ of the probability that a reference scores at least as high, under a fitted skew-normal distribution.

    It separates canaries that rank above every reference, as far as the fit can be trusted in the tail.

    Args:
        canaries: shape (…), scores of canaries.
        references: shape (n,), n ≥ 3 and not all equal.

    Returns:
        Shape (…), in bits; inf where the fitted tail underflows.

    Raises:
        ValueError: if a score is NaN, there are fewer than 3 references, or all are equal.
    """
    from scipy import stats

    scores, sample = _scores(canaries), _references(references, 3)
    if sample.min() == sample.max():
        raise ValueError("references must not all have the same score: no distribution can be fitted to them")
    law = stats.skewnorm(*stats.skewnorm.fit(sample))
    return np.asarray(-law.logsf(scores) / math.log(2), dtype=np.float64)


def _scores(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError("scores must be numbers, not NaN")
    return values


def _references(references: ArrayLike, least: int) -> Floats:
    values = _scores(references)
    if values.ndim != 1 or values.size < least:
        raise ValueError(f"references must be a 1-D array of at least {least} scores, not of shape {values.shape}")
    return values
