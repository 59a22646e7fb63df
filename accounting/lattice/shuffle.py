"""Shuffled batches with Gaussian noise: what an adversary attains who knows all records but one.

Of the sums of an epoch's batches, one, chosen uniformly, is normal around `first` with the record's value and around
`second` without it, and all others around 0. Their maximum has a law in closed form: it is at most x with probability
Φ(x)^(t − 1)·Φ(x − mean).

Source: Chua et al., "How Private are DP-SGD Implementations?" (2024). Proof: docs/proofs/sampling.md, Theorem 8.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from dpassay.accounting.lattice.laws import Atoms
from dpassay.base.arrays import Floats

_FARTHEST = 30.0  # standard deviations of a mean, so that no probability underflows
_LAST = 17.0  # beyond this many above `second` sums are counted together: Φ is known to an absolute 1e-88 beyond 20
_BINS = 400
_ERROR = 1e-9  # relative, of each mass


def law_of_maxima(first: float, second: float, batches: int) -> Atoms:
    """The loss of the largest of `batches` sums with the mean `first` over that with the mean `second`.

    Args:
        first, second: means in standard deviations, first > second ≥ 0; the adversary adds noise to larger ones.
        batches: t, at least 1.
    """
    shrunk = min(1.0, _FARTHEST / first)
    means = first * shrunk, second * shrunk
    lowest, highest = float(special.ndtri_exp(math.log(1e-9) / batches)), -float(special.ndtri(1e-12 / batches))
    edges = np.linspace(lowest, min(highest + means[0], means[1] + _LAST), _BINS)
    p, q = (_masses(edges, mean, batches) for mean in means)
    return Atoms(p, q, error=_ERROR, losses=np.log(p / q))


def _masses(edges: Floats, mean: float, batches: int) -> Floats:
    """The probabilities of the bins between, below and above the edges.

    Each is the difference of what lies below its ends, or above them in the upper half, and at least a thousandth of
    that, so it is right to a relative 1e-9, as logarithms of Φ are to 1e-13.
    """
    log_below = (batches - 1) * special.log_ndtr(edges) + special.log_ndtr(edges - mean)
    below, above = np.exp(log_below), -np.expm1(log_below)
    from_below, from_above = np.diff(below, prepend=0.0, append=1.0), -np.diff(above, prepend=1.0, append=0.0)
    masses = np.where(np.append(below, 1.0) < 0.5, from_below, from_above)
    return np.asarray(masses / math.fsum(masses))
