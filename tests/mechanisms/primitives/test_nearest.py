"""The nearest centre: exact, one vector at a time, whatever the blocks."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples

from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.primitives import nearest as module
from dpassay.mechanisms.primitives.nearest import exactly_nearest, nearest


def near_ties(seed: int, count: int, centres: int, dimension: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Vectors, and centres in pairs that are reflections of each other but for a few units of float32."""
    generator = np.random.default_rng(seed)
    vectors = unit_rows(generator.normal(size=(count, dimension)))
    points = np.repeat(unit_rows(generator.normal(size=(centres, dimension))), 2, axis=0)
    moved = points * (1 + generator.integers(-3, 4, size=points.shape) * 2.0**-24)
    return vectors, moved.astype(np.float32)


def score(vector: NDArray[np.floating], point: NDArray[np.floating], power: int = 1) -> Fraction:
    """x·c − |c|²/2 in rational numbers; the centre on the grid 2⁻²⁴ and the vector on one that is `power` as wide."""
    x = [round(Fraction(float(n)) / power * 2**24) * Fraction(power, 2**24) for n in vector]
    c = [Fraction(round(Fraction(float(n)) * 2**24), 2**24) for n in point]
    return sum((a * b - b * b / 2 for a, b in zip(x, c, strict=True)), Fraction(0))


def exact_place(vector: NDArray[np.floating], points: NDArray[np.floating]) -> int:
    """Of the points that are nearest, the first."""
    return max(range(len(points)), key=lambda k: (score(vector, points[k]), -k))


def test_near_ties_are_decided_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rational numbers. With the float32 product alone, the same vectors are given to wrong centres."""
    vectors, points = near_ties(0, 60, 4, 24)
    exact = [exact_place(x, points) for x in vectors]
    assert nearest(vectors, points).tolist() == exact
    monkeypatch.setattr(module, "score_error", lambda *_: 0.0)
    assert nearest(vectors, points).tolist() != exact


def watched(asked: list[int]) -> Callable[[Any, Any], Any]:
    """`exactly_nearest`, which notes how many vectors it is asked for."""

    def exactly(vectors: Any, points: Any) -> Any:
        asked.append(len(vectors))
        return exactly_nearest(vectors, points)

    return exactly


@pytest.mark.grid("kind", "dimension", "longer")
@pytest.mark.parametrize("kind", ["random", "one sign", "rising", "cancelling"])
@pytest.mark.parametrize(("dimension", "longer"), [(1, 1.0), (3, 1.0), (384, 1.0), (3000, 1.0), (3, 50.0), (384, 1.9)])
def test_products_in_float32_are_within_the_stated_error(dimension: int, longer: float, kind: str) -> None:
    """Against rational numbers, in several orders of summing; at most by what any order can give."""
    generator = np.random.default_rng(dimension)
    x, c = generator.normal(size=(2, 1, dimension))
    if kind == "one sign":
        x, c = abs(x), abs(x)
    elif kind == "rising":
        x, c = np.sort(abs(x)), np.sort(abs(x)) + 1e-7
    elif kind == "cancelling":
        c = x * np.where(np.arange(dimension) % 2, 1, -1)
    x, c = unit_rows(x) * np.float32(longer), unit_rows(c)
    half = -np.square(np.rint(c.astype(np.float64) * 2**24) / 2**24).sum() / 2
    long_x, long_c = np.append(x, np.float32(1)), np.append(c, np.float32(half))
    products = long_x * long_c
    in_order, backwards = np.cumsum(products, dtype=np.float32)[-1], np.cumsum(products[::-1], dtype=np.float32)[-1]
    power = max(1, 2 ** math.ceil(math.log2(longer)))
    exact = score(x[0], c[0], power)
    for result in (in_order, backwards, long_x @ long_c, products.sum()):
        assert abs(Fraction(float(result)) - exact) <= power * Fraction(module.score_error(dimension))


@pytest.mark.grid
@pytest.mark.parametrize("longer", [1.0, 1.9, 50.0])
@pytest.mark.parametrize(
    ("dimension", "wide"), [(1, 0.1), (3, 0.6), (384, 0.6), (384, 1e-3), (384, 1e-6), (2000, 1e-4)]
)
def test_differences_in_float32_are_within_the_stated_error(dimension: int, wide: float, longer: float) -> None:
    """The same for centres near to each other, whose differences from a point in the middle are what is multiplied."""
    generator = np.random.default_rng(dimension)
    middle, directions = (
        unit_rows(generator.normal(size=(1, dimension))),
        unit_rows(generator.normal(size=(2, dimension))),
    )
    points = middle + wide * np.concatenate([directions, -directions])
    points = (points / max(1, np.linalg.norm(points, axis=1).max())).astype(np.float64)
    scores = module.CentreScores.of(points)
    assert scores.unit == 1
    grid = np.rint(points * 2**24)
    origin = np.rint(grid.mean(axis=0))
    reach = float(np.linalg.norm(grid - origin, axis=1).max() / 2**24)
    assert 0.5 * wide < reach < 1.5 * wide
    assert scores.margin == 2 * module.score_error(dimension, reach) < 2 * module.score_error(dimension)
    power = max(1, 2 ** math.ceil(math.log2(longer)))
    others = unit_rows(generator.normal(size=(300 // dimension, dimension))) * generator.random((300 // dimension, 1))
    for x in (directions[0], middle[0], np.abs(middle[0]), *others):
        row = np.append((x * longer).astype(np.float32), np.float32(1))
        for point, line in zip(points, scores.table, strict=True):
            exact = score(row[:-1], point, power) - score(row[:-1], origin / 2**24, power)
            products = row * line
            in_order, backwards = (np.cumsum(part, dtype=np.float32)[-1] for part in (products, products[::-1]))
            for result in (in_order, backwards, row @ line, products.sum()):
                assert abs(Fraction(float(result)) - exact) <= power * Fraction(scores.margin) / 2


def candidates(kind: str) -> NDArray[np.float32]:
    """300 unit vectors: variations of 50 by so much, of one, or 30 variations each of ten that tie."""
    generator = np.random.default_rng(7)
    count, wide = {"groups": (50, 1e-5), "wider groups": (50, 1e-3), "one group": (1, 1e-3), "large groups": (10, 0.0)}[
        kind
    ]
    base = np.repeat(unit_rows(generator.normal(size=(count, 48))), 300 // count, axis=0)
    ulps = generator.integers(-2, 3, size=base.shape) * 2.0**-24
    return unit_rows(base + wide * generator.normal(size=base.shape) / 7 + ulps * base)


@pytest.mark.parametrize("long", [1.0, 3.0, 1e5])
@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("groups", 0, 0), ("wider groups", 0, 0), ("one group", 0, 40), ("large groups", 400, 400)],
)
def test_what_float32_leaves_open_is_decided_between_few_centres(
    kind: str, least: int, most: int, long: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 vectors, which are compared with all centres exactly: only those with many centres within the error."""
    points, asked = candidates(kind), [0]
    vectors = unit_rows(np.random.default_rng(8).normal(size=(400, 48))).astype(np.float64) * long
    expected = exactly_nearest(vectors, points)
    assert len(set(expected.tolist())) > 3
    monkeypatch.setattr(module, "exactly_nearest", watched(asked))
    for block in (module.BLOCK_BYTES, 2**16):
        monkeypatch.setattr(module, "BLOCK_BYTES", block)
        asked.clear()
        assert np.array_equal(nearest(vectors, points), expected)
        assert least <= sum(asked) <= most


def test_of_equally_near_centres_the_first_is_taken_also_where_pairs_decide() -> None:
    """Centres that differ, and are mirror images of each other for the vector: scores are equal, bit by bit."""
    points = np.array([[0.6, -0.8], [-0.6, 0.8], [0.6, 0.8], [-0.6, -0.8], [0.0, 0.5]], dtype=np.float32)
    vectors = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [0.0, 0.0]], dtype=np.float32)
    exact = [exact_place(x, points) for x in vectors]
    assert nearest(vectors, points).tolist() == exact == [0, 1, 0, 4]
    assert nearest(vectors[:0], points).tolist() == []


@examples(12, 25)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), centres=st.integers(1, 9), size=st.integers(1, 12))
def test_an_answer_depends_on_no_other_vector_and_on_no_block(seed: int, count: int, centres: int, size: int) -> None:
    vectors, points = near_ties(seed, count, centres, 40)
    whole = nearest(vectors, points)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "BLOCK_BYTES", 4 * size * (2 * centres + 6 * 41))
        assert np.array_equal(nearest(vectors, points), whole)
    for index in range(count):
        assert np.array_equal(nearest(np.delete(vectors, index, axis=0), points), np.delete(whole, index))


def test_equal_centres_lose_to_the_first_and_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    vectors, points = unit_rows(generator.normal(size=(50, 16))), unit_rows(generator.normal(size=(8, 16)))
    alone = nearest(vectors, points)
    again = [0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 3]
    first = {centre: again.index(centre) for centre in range(8)}
    asked: list[int] = []
    monkeypatch.setattr(module, "exactly_nearest", watched(asked))
    assert nearest(vectors, points[again]).tolist() == [first[centre] for centre in alone.tolist()]
    assert sum(asked) < 5  # and not all 50, each of which is as near to a centre's twin
    assert nearest(np.zeros((3, 16)), unit_rows(-np.ones((2, 16)))).tolist() == [0, 0, 0]
    assert nearest(vectors[:4], points[:1]).tolist() == [0, 0, 0, 0]


@pytest.mark.grid("long", "far")
@pytest.mark.parametrize("long", [0.01, 1.0, 1.001, 1.9, 2.1, 77.0, 1e6])
@pytest.mark.parametrize("far", [0.3, 1.0, 5.0])
def test_the_fast_answer_is_the_exact_one_at_every_length(long: float, far: float) -> None:
    vectors, points = near_ties(2, 200, 5, 48)
    rows, centres = vectors.astype(np.float64) * long, points.astype(np.float64) * far
    assert np.array_equal(nearest(rows, centres), exactly_nearest(rows, centres))


@examples(14, 40)
@given(seed=st.integers(0, 10**6), long=st.sampled_from([1.0, 3.0, 40.0, 1e5]), far=st.sampled_from([1.0, 7.0, 300.0]))
def test_long_vectors_and_centres_are_scaled(seed: int, long: float, far: float) -> None:
    """The squared distance to the centre found is at most the least one, up to the grid's rounding.

    Coordinates move by at most 2⁻²⁴ of the longer of vector and centres, so 2x·c − |c|² by 4√d·2⁻²⁴ times the product
    of the two lengths, and the difference of two of them by twice that.
    """
    generator = np.random.default_rng(seed)
    vectors = unit_rows(generator.normal(size=(20, 6))).astype(np.float64) * long
    points = unit_rows(generator.normal(size=(9, 6))).astype(np.float64) * far * generator.uniform(0.1, 1, size=(9, 1))
    distances = np.square(vectors[:, None] - points).sum(axis=2)
    taken = distances[np.arange(20), nearest(vectors, points)]
    slack = 8 * np.sqrt(6) * 2.0**-24 * max(2 * far, 1) * (max(2 * long, 1) + max(2 * far, 1))
    assert (taken <= distances.min(axis=1) + slack).all()


@pytest.mark.parametrize("kind", ["pairs", "a group"])
def test_memory_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy reports its arrays to tracemalloc: 1 MiB of blocks where all products together would take 24 MB."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**20)
    vectors, points = near_ties(1, 30_000, 100, 32)
    if kind == "a group":  # of many centres that float32 cannot tell apart, but not of all
        points[6:] = points[0] + points[6:] * 2.0**-23
        vectors = np.where(vectors @ points[:1].T > 0, vectors, -vectors)  # all are nearest to it
    tracemalloc.start()
    try:
        result = nearest(vectors, points)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    answer = 3 * result.nbytes  # found, the numbers of those that are left, and those again in one piece
    assert peak < 1.5 * module.BLOCK_BYTES + answer + 8 * points.nbytes < 4 * 30_000 * 200 / 5


@examples(34, 100)
@given(seed=st.integers(0, 10**6), unit=st.sampled_from([1.0, 4.0]), long=st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e4]))
def test_vectors_are_rounded_to_whole_multiples(seed: int, unit: float, long: float) -> None:
    vectors = unit_rows(np.random.default_rng(seed).normal(size=(3, 7))) * np.float32(long)
    rows, powers = module.rows_on_grid(vectors, unit)
    for row, power, vector in zip(rows, powers, vectors, strict=True):
        exact = [Fraction(float(n)) * 2**24 / Fraction(float(power)) / Fraction(unit) for n in vector]
        assert row.tolist() == [round(item) for item in exact]
        assert np.abs(row).max() <= 1.002 * 2**24
