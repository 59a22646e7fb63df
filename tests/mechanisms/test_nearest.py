"""The nearest centre: exact, one vector at a time, whatever the blocks."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cupel.mechanisms import nearest as module
from cupel.mechanisms.embedders import unit_rows
from cupel.mechanisms.nearest import exactly_nearest, nearest


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


def test_near_ties_are_decided_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against rational numbers. With the float32 product alone, the same vectors are given to wrong centres."""
    vectors, points = near_ties(0, 60, 4, 24)
    exact = [max(range(len(points)), key=lambda k, x=x: (score(x, points[k]), -k)) for x in vectors]
    assert nearest(vectors, points).tolist() == exact
    monkeypatch.setattr(module, "_score_error", lambda dimension: -1.0)
    assert nearest(vectors, points).tolist() != exact


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
    for found in (in_order, backwards, long_x @ long_c, products.sum()):
        assert abs(Fraction(float(found)) - exact) <= power * Fraction(module._score_error(dimension))


@settings(max_examples=25, deadline=None)
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
    monkeypatch.setattr(module, "exactly_nearest", lambda v, c: asked.append(len(v)) or exactly_nearest(v, c))
    assert nearest(vectors, points[again]).tolist() == [first[centre] for centre in alone.tolist()]
    assert sum(asked) < 5  # and not all 50, each of which is as near to a centre's twin
    assert nearest(np.zeros((3, 16)), unit_rows(-np.ones((2, 16)))).tolist() == [0, 0, 0]
    assert nearest(vectors[:4], points[:1]).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("long", [0.01, 1.0, 1.001, 1.9, 2.1, 77.0, 1e6])
@pytest.mark.parametrize("far", [0.3, 1.0, 5.0])
def test_the_fast_answer_is_the_exact_one_at_every_length(long: float, far: float) -> None:
    vectors, points = near_ties(2, 200, 5, 48)
    rows, centres = vectors.astype(np.float64) * long, points.astype(np.float64) * far
    assert np.array_equal(nearest(rows, centres), exactly_nearest(rows, centres))


@settings(max_examples=40, deadline=None)
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


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy reports its arrays to tracemalloc: 1 MiB of blocks where all products together would take 24 MB."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**20)
    vectors, points = near_ties(1, 30_000, 100, 32)
    tracemalloc.start()
    try:
        found = nearest(vectors, points)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    answer = 3 * found.nbytes  # found, which are undecided, and the numbers of those
    assert peak < 2 * module.BLOCK_BYTES + answer + 8 * points.nbytes < 4 * 30_000 * 200 / 5
