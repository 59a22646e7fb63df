"""Which candidates the released votes of a round select: post-processing, so it costs no privacy.

Source: "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (Xie et al. 2024), Algorithm 1.
"""

from __future__ import annotations

import hashlib

import numpy as np

from dpassay.base.arrays import Floats


def selected(votes: Floats, wanted: int, *, threshold: float, seed: tuple[int, int, str | None] | None) -> list[int]:
    """The best candidates by released votes; ties, as below the threshold, go to earlier candidates.

    Args:
        votes: noisy, shape (candidates,).
        wanted: number of candidates to select.
        threshold: noisy counts below it are treated as 0.
        seed: public: candidates are drawn without replacement, with probability proportional to the excess over the
            threshold. None to take the largest.
    """
    above = np.maximum(votes - threshold, 0.0)
    order = np.argsort(-above, kind="stable")
    if seed is not None and (total := above.sum()) > 0:
        digest = hashlib.sha256(repr(seed).encode("utf-8", "surrogatepass")).digest()
        size = min(wanted, int((above > 0).sum()))
        drawn = np.random.default_rng(list(digest)).choice(len(votes), size, replace=False, p=above / total)
        order = np.concatenate([drawn, order[~np.isin(order, drawn)]])
    kept: list[int] = order[:wanted].tolist()
    return kept
