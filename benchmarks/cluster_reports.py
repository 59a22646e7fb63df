"""How well clusters fit private records. Private diagnostics: not differentially private; do not release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base import validate


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Sizes of clusters, and their agreement with a known grouping. Private.

    Attributes:
        records: number of clustered records.
        clusters: number of clusters, including empty ones.
        used: number of clusters with at least 2 records.
        large: number of clusters with at least `large_from` records.
        large_from: the smallest size of a large cluster.
        largest_share: the fraction of all records in the largest cluster, 0 to 1.
        sizes: of all clusters, largest first.
        homogeneity, completeness, v_measure: compared with the known grouping, 0 to 1; None without one.
    """

    records: int
    clusters: int
    used: int
    large: int
    large_from: int
    largest_share: float
    sizes: tuple[int, ...]
    homogeneity: float | None
    completeness: float | None
    v_measure: float | None


def cluster_report(
    assignment: ArrayLike, clusters: int, truth: Sequence[Any] | None = None, *, large_from: int = 100
) -> ClusterReport:
    """A report on clusters of private records. Not differentially private; do not release.

    Args:
        assignment: shape (records,), the cluster of each record, 0 to clusters − 1.
        clusters: number of clusters.
        truth: a known grouping of the same records, for example their topics.
        large_from: the smallest size of a large cluster.

    Raises:
        ValueError: if a cluster number is out of range, or `truth` has another length.

    Source: Rosenberg and Hirschberg, "V-Measure" (2007); the table is that of "Clustering and Median Aggregation
    Improve Differentially Private Inference", section 4.1.
    """
    from sklearn.metrics import homogeneity_completeness_v_measure

    result = np.asarray(assignment, dtype=np.int64)
    validate.integer(minimum=1, clusters=clusters)
    validate.integer(minimum=1, large_from=large_from)
    if result.ndim != 1 or (len(result) and not 0 <= result.min() <= result.max() < clusters):
        raise ValueError(f"assignment must hold one cluster number for each record, 0 to {clusters - 1}")
    if truth is not None and len(truth) != len(result):
        raise ValueError(f"truth must have one group for each of {len(result)} records, not {len(truth)}")
    sizes = np.sort(np.bincount(result, minlength=clusters))[::-1]
    agreement: tuple[float | None, ...] = (None, None, None)
    if truth is not None:
        _, groups = np.unique(np.asarray(truth), return_inverse=True)
        agreement = tuple(map(float, homogeneity_completeness_v_measure(groups, result)))
    return ClusterReport(
        records=len(result),
        clusters=clusters,
        used=int((sizes >= 2).sum()),
        large=int((sizes >= large_from).sum()),
        large_from=large_from,
        largest_share=float(sizes[0] / max(1, len(result))),
        sizes=tuple(sizes.tolist()),
        homogeneity=agreement[0],
        completeness=agreement[1],
        v_measure=agreement[2],
    )
