"""How well clusters fit private records. Private diagnostics: they are exact, nobody paid for them, none may leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting import validate


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Sizes of clusters, and how they agree with a known grouping. Private.

    Attributes:
        records: how many records were clustered.
        clusters: how many clusters there are, empty ones too.
        used: how many have at least 2 records.
        large: how many have at least `large_from` records.
        large_from: the least size of a large cluster.
        largest_share: the part of all records that the largest cluster has, 0 to 1.
        sizes: of all clusters, largest first.
        homogeneity, completeness, v_measure: against the known grouping, 0 to 1; None without one.
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

    def to_json(self) -> dict[str, Any]:
        """The report in JSON types, with a mark that it is private."""
        return {"private": True, **asdict(self), "sizes": list(self.sizes)}


def cluster_report(
    assignment: ArrayLike, clusters: int, truth: Sequence[Any] | None = None, *, large_from: int = 100
) -> ClusterReport:
    """What the clusters of private records look like; private.

    Args:
        assignment: shape (records,), the cluster of each record, 0 to clusters − 1.
        clusters: how many there are.
        truth: a known grouping of the same records, for example their topics.
        large_from: the least size of a large cluster.

    Raises:
        ValueError: for cluster numbers out of range, or a grouping of other records.

    Source: Rosenberg and Hirschberg, "V-Measure" (2007); the table is that of "Clustering and Median Aggregation
    Improve Differentially Private Inference", section 4.1.
    """
    from sklearn.metrics import homogeneity_completeness_v_measure

    found = np.asarray(assignment, dtype=np.int64)
    validate.integer(minimum=1, clusters=clusters)
    validate.integer(minimum=1, large_from=large_from)
    if found.ndim != 1 or (len(found) and not 0 <= found.min() <= found.max() < clusters):
        raise ValueError(f"assignment must hold one cluster number for each record, 0 to {clusters - 1}")
    if truth is not None and len(truth) != len(found):
        raise ValueError(f"truth must have one group for each of {len(found)} records, not {len(truth)}")
    sizes = np.sort(np.bincount(found, minlength=clusters))[::-1]
    agreement: tuple[float | None, ...] = (None, None, None)
    if truth is not None:
        _, groups = np.unique(np.asarray(truth), return_inverse=True)
        agreement = tuple(map(float, homogeneity_completeness_v_measure(groups, found)))
    return ClusterReport(
        records=len(found),
        clusters=clusters,
        used=int((sizes >= 2).sum()),
        large=int((sizes >= large_from).sum()),
        large_from=large_from,
        largest_share=float(sizes[0] / max(1, len(found))),
        sizes=tuple(sizes.tolist()),
        homogeneity=agreement[0],
        completeness=agreement[1],
        v_measure=agreement[2],
    )
