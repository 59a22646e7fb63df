"""Exposure of a canary: how far up it ranks among secrets that were never in the data, in bits. Never a bound on ε.

Scores are larger where the model finds a secret likelier (for example minus its loss).

Source: Carlini, Liu, Erlingsson, Kos and Song, "The Secret Sharer" (2019), sections 4.2 and 4.3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def exposure_interpolated(canaries: ArrayLike, references: ArrayLike) -> Floats:
    """log₂|R| − log₂ rank, for R the references and the canary itself; ties are decided for the references.

    Args:
        canaries: shape (…), scores of canaries.
        references: shape (n,), n ≥ 1, scores of secrets drawn as the canaries were, none of which was in the data.

    Returns:
        Shape (…), in bits: 0 for a canary that ranks last, log₂(n + 1) for one before all references.

    Raises:
        ValueError: for scores that are no numbers, or no references.
    """
    scores, ordered = _scores(canaries), np.sort(_references(references, 1))
    ahead = ordered.size - np.searchsorted(ordered, scores, side="left")  # references with a score at least as large
    return np.asarray(np.log2(ordered.size + 1) - np.log2(1 + ahead), dtype=np.float64)


def exposure_extrapolated(canaries: ArrayLike, references: ArrayLike) -> Floats:
    """−log₂ of the probability that a reference scores at least as high, by a skew-normal law fitted to references.

    It tells canaries apart that rank before every reference, as far as the fitted law can be believed there.

    Args:
        canaries: shape (…), scores of canaries.
        references: shape (n,), n ≥ 3 and not all equal.

    Returns:
        Shape (…), in bits; inf where the fitted tail underflows.

    Raises:
        ValueError: as above.
    """
    from scipy import stats

    scores, sample = _scores(canaries), _references(references, 3)
    if sample.min() == sample.max():
        raise ValueError("references all have the same score; a law cannot be fitted to them")
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
        raise ValueError(f"references must be one row of at least {least} scores, not shape {values.shape}")
    return values
