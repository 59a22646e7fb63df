"""Vectors in a file are those in memory, and have the same votes."""

from __future__ import annotations

import numpy as np
import pytest

from dpassay.data.records import LARGE
from dpassay.mechanisms.embedding.embedder import Embedder, HashedNgrams, all_embedded, embedded
from dpassay.mechanisms.embedding.stored_vectors import StoredVectors, embedded_records
from dpassay.mechanisms.evolution.voting import record_votes

TEXTS = [f"text {index % 700} of {index % 13}" for index in range(9000)]
EMBEDDER = HashedNgrams(dimension=8)


def in_file(embedder: Embedder) -> StoredVectors:
    return StoredVectors(embedded(embedder, iter(TEXTS)), embedder.dimension)


def test_slices_and_places_are_those_of_the_table() -> None:
    table, stored = all_embedded(EMBEDDER, TEXTS), in_file(EMBEDDER)
    assert stored.shape == table.shape == (len(TEXTS), 8)
    assert len(stored) == len(TEXTS)
    for part in (slice(0, 5), slice(4090, 4100), slice(8999, 20_000), slice(7, 3), slice(None)):
        assert np.array_equal(stored[part], table[part])
    for places in ([3, 8999, 3, 4096], [5, 6, 7, 2, 3, 9], [8999], list(range(4090, 4100))):
        assert np.array_equal(stored[np.array(places)], table[places])
    assert stored[np.zeros(0, dtype=np.int64)].shape == (0, 8)
    assert np.array_equal(stored.mapped(), table)


def test_votes_are_the_same() -> None:
    candidates = all_embedded(EMBEDDER, TEXTS[::600])
    table = all_embedded(EMBEDDER, TEXTS)
    stored = in_file(EMBEDDER)
    votes = record_votes(stored, candidates)
    assert votes.sum() == len(TEXTS)
    assert np.array_equal(votes, record_votes(table, candidates))


def test_only_many_are_in_a_file() -> None:
    assert isinstance(embedded_records(EMBEDDER, TEXTS, len(TEXTS)), np.ndarray)
    assert isinstance(embedded_records(EMBEDDER, TEXTS, LARGE + 1), StoredVectors)


def test_vectors_that_are_too_long_are_refused() -> None:
    class Long:
        name, fingerprint, dimension = "long", "0", 8

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 8), dtype=np.float32)

    with pytest.raises(ValueError, match="must give one row of length 1 or 0"):
        in_file(Long())  # type: ignore[arg-type]
