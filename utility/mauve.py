"""MAUVE by the package `mauve-text`, which is under the GPL: imported only when this is called, and no part of dpassay.

Private: it is computed from real texts.

Source: Pillutla et al., "MAUVE: Measuring the Gap Between Neural Text and Human Text using Divergence Frontiers"
(2021); MAUVE* is from "MAUVE Scores for Generative Models: Theory and Practice" (2023).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base import defaults, validate
from dpassay.base.extras import install
from dpassay.utility.result import Result

SCALING = 5


@dataclass(frozen=True)
class MauveScore(Result):
    """MAUVE of two sets of embeddings, in (0, 1], 1 for equal distributions, and MAUVE*, in (0, 1], which does not fall
    with empty buckets, with the number of clusters and the scaling factor."""

    value: float
    smoothed: float
    buckets: int
    scaling: int


def compute_mauve() -> Callable[..., Any]:
    """The function of the package.

    Raises:
        ValueError: one line, where the package is missing.
    """
    try:
        compute: Callable[..., Any] = importlib.import_module("mauve").compute_mauve
    except (ImportError, AttributeError):
        raise ValueError(
            f"mauve-text is not installed; MAUVE needs {install('mauve')} (its licence is the GPL, version 3)"
        ) from None
    return compute


def mauve_score(
    synthetic: ArrayLike, real: ArrayLike, *, buckets: int = defaults.MAUVE_CLUSTERS, seed: int = 0
) -> MauveScore:
    """MAUVE of two sets of embeddings, 1 for alike and near 0 for apart, with scaling factor 5.

    Args:
        synthetic, real: shapes (n, d) and (m, d).
        buckets: the number of clusters, a public choice: a number taken from n would differ between runs, and values
            with different numbers of buckets do not compare.
        seed: of the clustering.

    Raises:
        ValueError: one line, if the package is missing, there are fewer texts than buckets, or all vectors are equal.
    """
    validate.integer(minimum=2, buckets=buckets)
    rows = {name: np.asarray(of, dtype=np.float32) for name, of in (("synthetic", synthetic), ("real", real))}
    for name, of in rows.items():
        if len(of) < buckets:
            raise ValueError(f"MAUVE with {buckets} buckets needs as many {name} texts; there are {len(of)}")
    if np.ptp(np.concatenate(list(rows.values())), axis=0).max() == 0:
        raise ValueError("MAUVE needs texts that are not all embedded alike")
    result = compute_mauve()(
        p_features=rows["real"],
        q_features=rows["synthetic"],
        num_buckets=buckets,
        mauve_scaling_factor=SCALING,
        seed=seed,
        verbose=False,
    )
    return MauveScore(float(result.mauve), float(result.mauve_star), buckets, SCALING)
