"""The exact search for the nearest vector, beside faiss and a product of matrices, on one thread and in turns.

    python benchmarks/nearest.py
    python benchmarks/nearest.py --quick --only spread

Every vector is given to the nearest of 2000 centres, in 384 numbers. Centres are spread evenly, or are 200 groups of
ten that differ by about as much as is said, or all belong to one group. faiss (`pip install faiss-cpu`; its exact
index, IndexFlatL2) and the product answer in float32: how many vectors they give to another centre is printed. Without
faiss its row is left out.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paired_times import Goal, Section, paired, run_script, times_faster

from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.primitives.nearest import nearest

Vectors = NDArray[np.float32]
VECTORS, CENTRES, DIMENSION = 20_000, 2000, 384
GROUPS = {"spread": (CENTRES, 0.0), "0.1": (200, 0.1), "0.001": (200, 1e-3), "1e-05": (200, 1e-5), "one": (1, 1e-3)}
"""Name to the number of groups and how far their centres are apart."""
SLOWEST = 2.0  # times faiss


def drawn(groups: int, apart: float) -> tuple[Vectors, Vectors]:
    """Unit vectors, and centres in so many groups of the same size."""
    generator = np.random.default_rng(0)
    base = np.repeat(unit_rows(generator.normal(size=(groups, DIMENSION))), CENTRES // groups, axis=0)
    noise = generator.normal(size=base.shape) * apart / np.sqrt(DIMENSION)
    return unit_rows(generator.normal(size=(VECTORS, DIMENSION))), unit_rows(base + noise)


def by_product(vectors: Vectors, centres: Vectors) -> NDArray[np.int64]:
    """In float32, all at once."""
    scores = vectors @ centres.T
    scores -= np.square(centres).sum(axis=1) / 2
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def by_faiss(faiss: Any, vectors: Vectors, centres: Vectors) -> NDArray[np.int64]:
    index = faiss.IndexFlatL2(DIMENSION)
    index.add(centres)
    return np.asarray(index.search(vectors, 1)[1][:, 0], dtype=np.int64)


def compared(name: str, rounds: int) -> Section:
    vectors, centres = drawn(*GROUPS[name])
    works: dict[str, Callable[[], Any]] = {
        "dpassay": partial(nearest, vectors, centres),
        "product": partial(by_product, vectors, centres),
    }
    try:
        import faiss

        faiss.omp_set_num_threads(1)
        works["faiss"] = partial(by_faiss, faiss, vectors, centres)
    except ImportError:
        pass
    results = paired(works, rounds)
    groups, apart = GROUPS[name]
    about = f"{VECTORS} vectors, {CENTRES} centres in {groups} groups, {apart:g} apart"
    section = Section(name, about, ("what", "wall ms", "CPU ms", "vectors given to another centre than by dpassay"))
    for what, times in results.items():
        others = int((times.answer != results["dpassay"].answer).sum())
        section.rows.append((what, f"{times.wall_ms:.0f}", f"{times.cpu_ms:.0f}", str(others)))
        section.data[what] = times.to_json()
    peer = "faiss" if "faiss" in results else "product"
    ratio = 1 / times_faster(results["dpassay"], results[peer])
    section.goals.append(Goal(f"time over that of {peer}, {name}", ratio, most=SLOWEST))
    return section


SECTIONS: dict[str, tuple[Callable[[int], Section], int, int]] = {
    name: (partial(compared, name), 9, 3) for name in GROUPS
}


if __name__ == "__main__":
    sys.exit(run_script(SECTIONS, __doc__))
