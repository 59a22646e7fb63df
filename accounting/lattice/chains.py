"""Units that change together, as a chain of single units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpassay.accounting.group_privacy import deltas_of_group
from dpassay.base.arrays import Floats

_FARTHEST, _NEGLIGIBLE = 650.0, 1e-40  # the losses of a chain, and the δ that ends them


def chain_curve(single: Callable[[Floats], Floats], size: int) -> tuple[Callable[[Floats], Floats], float]:
    """An upper bound on δ(ε) of `size` units, one after the other, and the largest ε at which it is evaluated.

    δ(ε) is at most δ₁(ε/k)(e^ε − 1)/(e^{ε/k} − 1).

    Args:
        single: upper bounds on δ₁ at each ε, of one unit in its worse direction.
        size: k ≥ 2.

    Proof: docs/proofs/groups.md, Theorem 1.
    """
    ends = np.geomspace(0.1, _FARTHEST / size, 64)
    deltas = np.minimum.accumulate(single(ends))
    grown = deltas_of_group(ends, deltas, size)
    small = np.flatnonzero(grown <= _NEGLIGIBLE)
    highest = float(ends[small[0] if small.size else np.argmin(grown)])  # beyond, a constant δ would only grow

    def curve(losses: Floats) -> Floats:
        epsilons = np.minimum(losses / size, highest)  # δ is smaller beyond
        # A profile is as good as the lattices kept for other questions. δ at an end does not depend on them.
        before = np.concatenate([[1.0], deltas])[np.searchsorted(ends, epsilons, side="right")]
        known = np.minimum(single(epsilons), before)
        grown = deltas_of_group(epsilons, known, size)
        return np.maximum(grown, -np.expm1(np.minimum(losses, 0.0)) * (1 + 2.0**-50))

    return curve, highest * size
