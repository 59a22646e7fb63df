"""Membership in dataset vectors: which of two records, or whether one, was summed, for many fair coins at once.

The attacker knows the mechanism, all public texts, the records without a coin, and what each coin chooses between. In
units of the clip, the released sum is then linear in the coins c ∈ {0, 1}ᵐ, up to noise of a known scale σ:

    sum = known + Σ_i c_i · change_i + noise.

- ``projection on the vectors``: ⟨sum − known − Σ_i change_i/2, change_i⟩, coin by coin;
- ``regression on the vectors``: the best linear estimate of all coins together, (ZZᵀ + 4σ²I)⁻¹ Z r, where row i of Z
  is change_i and r is the first argument of that product. Without noise it is exact as long as there are no more coins
  than coordinates.

Scores are functions of what was released and of both possible records of each coin, never of the coins.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from dpassay.base import validate
from dpassay.base.arrays import Floats

PROJECTION, REGRESSION = "projection on the vectors", "regression on the vectors"

_RIDGE = 1e-9  # of the mean square length of a change, where there is no noise


def coin_scores(released: Floats, known: Floats, changes: Floats, scale: float) -> dict[str, Floats]:
    """Scores of all coins of one label, shape (m,) each; larger for 1. All are in units of the clip.

    Args:
        released: the noisy sum, shape (blocks, d).
        known: what is summed for certain, and of each coin's records that for 0, in the same shape.
        changes: what the record for 1 adds beyond that for 0, shape (m, blocks, d).
        scale: σ of the noise, at least 0.
    """
    validate.non_negative(scale=scale)
    rows = changes.reshape(len(changes), -1)
    residual = (released - known).ravel() - rows.sum(axis=0) / 2
    gram, projected = rows @ rows.T, rows @ residual
    lengths = np.sqrt(np.diag(gram))
    ridge = max(4 * scale**2, _RIDGE * float(np.diag(gram).mean()), np.finfo(np.float64).tiny)
    estimate = linalg.solve(gram + ridge * np.eye(len(rows)), projected, assume_a="pos")
    return {
        REGRESSION: np.asarray(estimate),
        PROJECTION: np.asarray(np.divide(projected, lengths, out=np.zeros_like(projected), where=lengths > 0)),
    }
