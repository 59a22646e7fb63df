"""What one round of voting costs: of every record (Aug-PE), and of noisy clusters (secret-protected evolution).

    OMP_NUM_THREADS=2 python benchmarks/voting.py
    OMP_NUM_THREADS=2 python benchmarks/voting.py --records 100000

All of it is measured at the size that is asked for; nothing is extrapolated. Embeddings are made up: unit vectors
around 600 topics. Those of the records lie in a file that is mapped into memory, float32, so that the largest resident
set (`ru_maxrss`, printed) counts every page of it that was read.

Printed: seconds of Aug-PE's votes and of secret-protected evolution's, their ratio, and beside each its limit, the
product of vectors and candidates at the rate of a matrix product that was measured in the same run; all by the clock
and in seconds of processors, which other work on the machine does not lengthen much. Then what secret-protected
evolution costs besides: each round the release with noise, in which `--drawn` of the private records take part, and
once the assignment of private records and the public clusters. Embedding and writing candidates cost both the same and
are not measured.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.evolution.voting import record_votes
from dpassay.mechanisms.secret_evolution.clustering import PublicClusters, release
from dpassay.mechanisms.secret_evolution.voting import centre_votes, kept_by_centres

Vectors = NDArray[np.float32]
TOPICS = 600


class Taken(NamedTuple):
    """Seconds by the clock, and of all threads on processors: the second does not grow when the machine is shared."""

    wall: float
    cpu: float

    def __add__(self, other: Taken) -> Taken:  # type: ignore[override]
        return Taken(self.wall + other.wall, self.cpu + other.cpu)

    def over(self, other: Taken) -> str:
        return f"{self.wall / other.wall:.1f} by the clock, {self.cpu / other.cpu:.1f} of processors"


def seconds(work: Callable[[], Any], repeats: int = 1) -> tuple[Taken, Any]:
    """The least times of a few calls, and what the last one returned."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        result = work()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return Taken(*map(min, zip(*times, strict=True))), result


def drawn_vectors(generator: np.random.Generator, topics: Vectors, count: int) -> Vectors:
    """Unit vectors around topics, the noise about as long as the topic: cosines of 0.5 within one."""
    rows = generator.standard_normal((count, topics.shape[1]), dtype=np.float32)
    rows /= np.float32(math.sqrt(topics.shape[1]))
    rows += topics[generator.integers(len(topics), size=count)]
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows


def write_records(path: Path, generator: np.random.Generator, topics: Vectors, count: int) -> Vectors:
    """A file of `count` vectors, written block by block, and mapped."""
    with path.open("wb") as file:
        for start in range(0, count, 2**12):
            drawn_vectors(generator, topics, min(2**12, count - start)).tofile(file)
    return np.memmap(path, dtype=np.float32, mode="r", shape=(count, topics.shape[1]))


def product_rate(dimension: int, candidates: int) -> Taken:
    """Seconds of one multiplication with addition in a float32 product of the shape of votes, the best of ten."""
    left, right = np.ones((1024, dimension), dtype=np.float32), np.ones((candidates, dimension), dtype=np.float32)
    out = np.empty((1024, candidates), dtype=np.float32)
    taken, _ = seconds(lambda: np.matmul(left, right.T, out=out), 10)
    return Taken(*(part / (1024 * dimension * candidates) for part in taken))


def peak() -> float:
    """The largest resident set so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def line(name: str, taken: Taken, note: str = "") -> None:
    print(f"  {name:44s} {taken.wall:10.4f} {taken.cpu:10.4f}   {note}".rstrip(), flush=True)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures and prints; also returns what was taken, by name, and the largest resident set in GiB."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_900_000)
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=600)
    parser.add_argument("--private", type=float, default=0.1, help="share of the records that hold a secret")
    parser.add_argument("--drawn", type=float, default=1.0, help="probability with which each of those takes part")
    parser.add_argument("--public-sample", type=int, default=120_000, help="public records that are clustered")
    asked = parser.parse_args(arguments)
    generator = np.random.default_rng(0)
    topics = unit_rows(generator.normal(size=(TOPICS, asked.dimension)))
    candidates = drawn_vectors(generator, topics, asked.candidates)
    rate = product_rate(asked.dimension, asked.candidates)
    print(f"numpy {np.__version__}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads, {os.cpu_count()} cores")
    print(
        f"a product in float32: {2e-9 / rate.wall:.1f} GFLOP/s, {2e-9 / rate.cpu:.1f} a processor; "
        f"load {os.getloadavg()[0]:.1f}"
    )

    def against(taken: Taken, rows: int, columns: int) -> str:
        limit = Taken(*(part * rows * columns * asked.dimension for part in rate))
        return f"limit {limit.wall:.4f} {limit.cpu:.4f}: {taken.over(limit)}"

    with tempfile.TemporaryDirectory() as folder:
        records = write_records(Path(folder) / "records.f32", generator, topics, asked.records)
        private = records[: int(asked.private * asked.records)]
        sample = np.array(records[len(private) : len(private) + asked.public_sample])
        print(
            f"{asked.records} records, {len(private)} of them private, {asked.candidates} candidates, "
            f"d = {asked.dimension}, K = {asked.clusters}; seconds by the clock, and of processors"
        )
        fitting, clusters = seconds(lambda: PublicClusters.fit(sample, asked.clusters))
        assigning, assigned = seconds(lambda: clusters.assign(private))
        chances = np.full(len(private), asked.drawn)
        releasing, noisy = seconds(lambda: release(clusters, private, chances, 2.0, assigned=assigned))
        ours, _ = seconds(lambda: centre_votes(noisy, candidates), 5)

        def choose() -> NDArray[np.int64]:
            return kept_by_centres(noisy, candidates, asked.candidates // 10)

        choosing, _ = seconds(choose, 3)
        theirs, histogram = seconds(lambda: record_votes(records, candidates))
        assert histogram.sum() == asked.records

    print("votes of one round")
    line("Aug-PE, every record", theirs, against(theirs, asked.records, asked.candidates))
    line("secret-protected evolution, every cluster", ours, against(ours, asked.clusters, asked.candidates))
    print(f"  ratio {theirs.over(ours)}; records over clusters {asked.records / asked.clusters:.0f}")
    print("what a round of secret-protected evolution costs besides")
    line(f"release of {asked.clusters * (1 + asked.dimension)} numbers with noise", releasing)
    line("choice of candidates, votes included", choosing)
    print(f"  ratio to all of it {theirs.over(releasing + choosing)}")
    print(f"  ratio without a release, where one serves all rounds: {theirs.over(choosing)}")
    print("once for all rounds")
    line(f"public clusters, from {len(sample)} vectors", fitting)
    line("assignment of the private records", assigning, against(assigning, len(private), asked.clusters))
    size = asked.records * asked.dimension * 4 / 2**30
    print(f"largest resident set {peak():.2f} GiB, of which the mapped records are at most {size:.2f}")
    return {
        "parameters": vars(asked),
        "votes of every record (Aug-PE)": theirs,
        "votes of every cluster": ours,
        "release with noise": releasing,
        "votes of clusters and choice of candidates": choosing,
        "public clusters, once": fitting,
        "assignment of private records, once": assigning,
        "peak": peak(),
    }


if __name__ == "__main__":
    main()
