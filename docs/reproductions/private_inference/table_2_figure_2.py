"""Table 2 and Figure 2: sizes of clusters around private, noisy, public and rebalanced centres.

python docs/reproductions/private_inference/table_2_figure_2.py [--seeds 5] [--first 0] [--quick] [--results FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

import figures
import numpy as np
import runs
from cluster_reports import cluster_report
from grammar import topic_of
from numpy.typing import NDArray
from private_centres import PrivateCentres

import data
from dpassay.accounting import ApproxDP, calibrate
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.mechanisms.embedding.centres import Centres, most_counted
from dpassay.mechanisms.embedding.embedder import HashedNgrams, Vectors, all_embedded
from dpassay.mechanisms.primitives.counts import noisy_counts
from dpassay.mechanisms.primitives.nearest import nearest

FULL = {"records": 7936, "public_texts": 8000, "clusters": 128, "kept": 32, "large_from": 31}
QUICK = {"records": 300, "public_texts": 300, "clusters": 8, "kept": 4, "large_from": 31}
COUNT_EPSILON = 0.1
PRIVATE_EPSILONS = (0.1, 10.0)
REFERENCE = "k-means on the private data"
EPSILONS: dict[str, float | None] = {
    REFERENCE: None,
    **{f"DPLloyd, ε = {epsilon:g}": epsilon for epsilon in PRIVATE_EPSILONS},
    "public centres": 0.0,
    "public centres, rebalanced": COUNT_EPSILON,
    "centres of other text": 0.0,
    "centres of other text, rebalanced": COUNT_EPSILON,
}
COLUMNS = (
    {"title": "centres", "key": "name"},
    {"title": "ε", "key": "epsilon", "digits": 1},
    {"title": "centres in use", "key": "clusters"},
    {"title": "clusters of ≥ 2", "key": "used", "digits": 0},
    {"title": "clusters of ≥ 31", "key": "large", "digits": 0},
    {"title": "largest cluster, % of records", "key": "largest", "digits": 1},
    {"title": "V-measure, k-means", "key": "v_reference", "digits": 2},
    {"title": "V-measure, topics", "key": "v_topics", "digits": 2},
)


@dataclass(frozen=True)
class Embedded:
    """Records' vectors and public centres, in the space that the public text defines."""

    records: Vectors
    centres: Vectors


def embedded(texts: list[str], public: list[str], count: int, seed: int) -> Embedded:
    """Public centres, and the private records among them."""
    embedder = HashedNgrams.fitted(public, seed=seed)
    return Embedded(all_embedded(embedder, texts), Centres.fit(public, count, embedder=embedder, seed=seed).vectors)


def lloyd(vectors: Vectors, count: int, epsilon: float, seed: int) -> Vectors:
    """Private centres whose zCDP is within (ε, n^−1.1)."""

    def of(rho: float) -> PrivateCentres:
        return PrivateCentres(clusters=count, dimension=vectors.shape[1], rho=rho, seed=seed)

    target = ApproxDP(epsilon, runs.delta_of(len(vectors)))
    found = calibrate(
        lambda rho: of(rho).plan(),
        target,
        adjacency=Adjacency.ADD_REMOVE,
        parameter="rho",
        decreasing=False,
        bracket=(1e-6, 100.0),
    )
    centres = of(found.value)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=centres.plan(), adjacency=centres.adjacency, unit=centres.unit, about={})
        fitted = centres.fit(vectors, run)
        run.finish()
    return fitted


def rebalanced(vectors: Vectors, centres: Vectors, kept: int) -> Vectors:
    """The centres with the largest noisy counts."""
    counts = np.bincount(nearest(vectors, centres), minlength=len(centres))
    noisy = noisy_counts(counts, epsilon=COUNT_EPSILON, adjacency=Adjacency.ADD_REMOVE)
    chosen: Vectors = centres[most_counted(noisy[None], kept)[0]]
    return chosen


def all_centres(rows: list[tuple[str, str]], size: dict[str, int], seed: int) -> dict[str, tuple[Vectors, Vectors]]:
    """For each way of the table, the records' vectors and the centres."""
    from sklearn.cluster import KMeans

    texts, count = [text for text, _ in rows], size["clusters"]
    same, other = (
        embedded(texts, data.public_texts(kind, size["public_texts"], seed), count, seed) for kind in data.PUBLIC_KINDS
    )
    private = KMeans(n_clusters=count, n_init=1, random_state=seed).fit(same.records).cluster_centers_
    found = {REFERENCE: (same.records, private.astype(np.float32))}
    for epsilon in PRIVATE_EPSILONS:
        found[f"DPLloyd, ε = {epsilon:g}"] = (same.records, lloyd(same.records, count, epsilon, seed))
    for name, space in (("public centres", same), ("centres of other text", other)):
        found[name] = (space.records, space.centres)
        found[f"{name}, rebalanced"] = (space.records, rebalanced(space.records, space.centres, size["kept"]))
    return found


def reports(size: dict[str, int], seed: int) -> dict[str, dict[str, Any]]:
    """Numbers of each way."""
    rows = data.topical(size["records"], seed)
    topics = [topic_of(text) for text, _ in rows]
    reference: NDArray[np.int64] | None = None
    found = {}
    for name, (vectors, centres) in all_centres(rows, size, seed).items():
        own = nearest(vectors, centres)
        reference = own if reference is None else reference
        report, by_topic = (
            cluster_report(own, len(centres), truth, large_from=size["large_from"])
            for truth in (reference.tolist(), topics)
        )
        found[name] = {
            "clusters": report.clusters,
            "used": report.used,
            "large": report.large,
            "largest": 100 * report.largest_share,
            "v_reference": None if name == REFERENCE else report.v_measure,
            "v_topics": by_topic.v_measure,
            "sizes": list(report.sizes),
        }
    return found


def main() -> int:
    options = runs.arguments("Table 2 and Figure 2: sizes of clusters around private and public centres.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "table_2_figure_2.json", size)
    for seed in range(options.first, options.first + options.seeds):
        if results.missing(list(EPSILONS)[-1], seed):
            for name, found in reports(size, seed).items():
                results.add(name, seed, **found)
    rows: list[dict[str, Any]] = []
    for name, epsilon in EPSILONS.items():
        row = {str(of["key"]): results.of(name, str(of["key"])) for of in COLUMNS}
        rows.append(row | {"name": name, "epsilon": "not private" if epsilon is None else epsilon})
    results.tables = {"table_2": {"columns": COLUMNS, "rows": rows}}
    results.save()
    sizes = {name: results.of(name, "sizes")[0] for name in EPSILONS}
    figures.sorted_sizes(sizes, size["large_from"], options.results / "figure_2.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
