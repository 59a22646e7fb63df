"""Public centres: what k-means finds, exact assignment, files, kept centres, and slots split among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cluster_reports import cluster_report
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from safetensors.numpy import save_file

from dpassay.accounting.adjacency import Unit
from dpassay.data.records import Record
from dpassay.mechanisms.embedding import centres as clustering
from dpassay.mechanisms.embedding.centres import Centres, most_counted, split_slots
from dpassay.mechanisms.embedding.embedder import HashedNgrams, all_embedded, unit_rows
from dpassay.mechanisms.primitives import nearest as nearest_module
from dpassay.mechanisms.primitives.nearest import nearest
from dpassay.mechanisms.private_inference.clusters import Clusters

TOPICS = {
    "medicine": "doctor patient hospital nurse surgery fever vaccine clinic diagnosis therapy",
    "finance": "stocks market interest bank revenue profit dividend shares investor bond",
    "sport": "goal match striker referee league stadium coach penalty champion tournament",
    "cooking": "oven butter flour simmer garlic recipe saucepan onion whisk seasoning",
}


def documents(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """(topic, text) of ten words of one topic."""
    chance = random.Random(seed)
    for index in range(count):
        topic = list(TOPICS)[index % len(TOPICS)]
        yield topic, " ".join(chance.choice(TOPICS[topic].split()) for _ in range(10))


PUBLIC = [text for _, text in documents(1, 400)]
PRIVATE = list(documents(2, 300))
SMALL = HashedNgrams(dimension=16, buckets=256)


def v_measure(centres: Centres) -> float:
    vectors = all_embedded(centres.own_embedder(), [text for _, text in PRIVATE])
    report = cluster_report(nearest(vectors, centres.vectors), centres.count, [topic for topic, _ in PRIVATE])
    assert report.v_measure is not None
    return report.v_measure


def test_topics_are_found_and_random_centres_find_none() -> None:
    fitted = Centres.fit(PUBLIC, 4)
    assert v_measure(fitted) > 0.95
    drawn = unit_rows(np.random.default_rng(0).normal(size=fitted.vectors.shape))
    # In 127 dimensions, all but 4 of them noise: what random directions see of the topics is little.
    labels = np.random.default_rng(1).integers(4, size=len(PRIVATE))
    chance = cluster_report(labels, 4, [topic for topic, _ in PRIVATE]).v_measure
    assert chance is not None
    assert chance < 0.1
    assert v_measure(Centres(drawn, fitted.embedder_name, fitted.embedder_fingerprint, fitted.embedder)) < 0.7


@pytest.mark.slow
def test_the_seed_decides_and_large_collections_use_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = (Centres.fit(PUBLIC, 6, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    monkeypatch.setattr(clustering, "MINI_BATCH_ABOVE", 100)
    batches = Centres.fit(PUBLIC, 4)
    assert batches.fingerprint != Centres.fit(PUBLIC, 6).fingerprint
    assert v_measure(batches) > 0.9


@examples(12, 30)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), centres=st.integers(1, 9))
def test_the_nearest_centre_is_exact_and_each_vectors_own(seed: int, count: int, centres: int) -> None:
    """Against rational arithmetic, with many near and exact ties; alone, among others and in small chunks."""
    generator = np.random.default_rng(seed)
    vectors = unit_rows(generator.integers(-2, 3, size=(count, 4)))
    points = unit_rows(generator.integers(-2, 3, size=(centres, 4))) * np.float32(0.75)
    result = nearest(vectors, points)
    grid = [[[Fraction(round(float(x) * 2**24)) for x in row] for row in rows] for rows in (vectors, points)]
    for index, vector in enumerate(grid[0]):
        distances = [sum((a - b) ** 2 for a, b in zip(vector, point, strict=True)) for point in grid[1]]
        assert result[index] == distances.index(min(distances))
        assert nearest(vectors[index : index + 1], points).tolist() == [result[index]]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = unit_rows(np.random.default_rng(0).normal(size=(1000, 20)))
    whole = nearest(vectors, vectors[:50])
    monkeypatch.setattr(nearest_module, "BLOCK_BYTES", 4000)
    assert np.array_equal(nearest(vectors, vectors[:50]), whole)
    assert whole[:50].tolist() == list(range(50))
    assert nearest(vectors[:0], vectors[:5]).shape == (0,)


def test_files_hold_what_was_saved_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "centres.safetensors"
    for embedder in (None, SMALL):
        centres = Centres.fit(PUBLIC, 5, embedder=embedder)
        centres.save(path)
        read = Centres.load(path)
        assert read.fingerprint == centres.fingerprint
        assert np.array_equal(read.vectors, centres.vectors)
        texts = [text for _, text in PRIVATE[:20]]
        own = centres.own_embedder()
        assert read.own_embedder().embed(texts).tobytes() == own.embed(texts).tobytes()
        assert PUBLIC[0].encode() not in path.read_bytes()


def test_what_is_no_file_of_centres_is_refused_in_one_line(tmp_path: Path) -> None:
    good = Centres.fit(PUBLIC, 5, embedder=SMALL)
    path = tmp_path / "centres.safetensors"
    good.save(path)
    content = path.read_bytes()
    cases: list[tuple[bytes, str]] = [
        (b"", "not a file of centres"),
        (content[:100], "not a file of centres"),
        (content.replace(b'dimension\\": ', b'dimensiom\\": '), "not a file of centres"),
        (content.replace(b'dimension\\": 16', b'dimension\\": 17'), "embedder must have the fingerprint"),
        (content.replace(good.embedder_fingerprint.encode(), b"0" * 64), "embedder must have the fingerprint"),
    ]
    for changed, message in cases:
        assert changed != content
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=message) as error:
            Centres.load(path)
        assert "\n" not in str(error.value)
    about = {"embedder": '{"name": "a", "fingerprint": "b"}'}
    save_file({"centres": np.full((2, 3), np.nan, dtype=np.float32)}, str(path), metadata=about)
    with pytest.raises(ValueError, match="finite numbers"):
        Centres.load(path)
    with pytest.raises(ValueError, match="there is no such file"):
        Centres.load(tmp_path / "none")


def test_centres_belong_to_their_embedder() -> None:
    centres = Centres.fit(PUBLIC, 5, embedder=SMALL)
    assert centres.own_embedder() is SMALL
    foreign = Centres(centres.vectors, "some/model", "0" * 64)
    with pytest.raises(ValueError, match="embedder must be the model 'some/model'"):
        foreign.own_embedder()
    cases: list[tuple[Callable[[], Centres], str]] = [
        (lambda: Centres.fit(PUBLIC, 401), "401 centres need at least as many public texts, not 400"),
        (lambda: Centres.fit([PUBLIC[0]] * 9, 2, embedder=SMALL), "as many distinct public texts, not 1"),
        (lambda: Centres(2 * centres.vectors[:1] / np.linalg.norm(centres.vectors[0]), "a", "b"), "unit ball"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


COUNTS = st.lists(st.integers(-20, 60), min_size=1, max_size=8)


@given(counts=COUNTS, extra=st.integers(0, 60))
def test_slots_are_split_in_proportion_and_all_are_used(counts: list[int], extra: int) -> None:
    slots = len(counts) + extra
    split = split_slots(counts, slots)
    assert sum(split) == slots
    assert min(split) >= 1
    weights = [max(0, count) for count in counts]
    if not any(weights):
        assert max(split) - min(split) <= 1
        return
    assert all(split[a] >= split[b] for a in range(len(split)) for b in range(len(split)) if weights[a] > weights[b])
    exact = [slots * weight / sum(weights) for weight in weights]
    if min(exact) >= 1:  # nobody needs help: largest remainders, so nobody is off by a slot
        assert all(abs(own - share) < 1 for own, share in zip(split, exact, strict=True))
    assert split == split_slots([count * 3 for count in counts], slots)


def test_slots_of_known_counts() -> None:
    assert split_slots([50, 30, 20], 10) == [5, 3, 2]
    assert split_slots([46, 34, 20], 10) == [5, 3, 2]  # remainders .6, .4, 0
    assert split_slots([97, 2, 1], 10) == [8, 1, 1]
    assert split_slots([-5, 0, 0], 7) == [3, 2, 2]
    with pytest.raises(ValueError, match="3 kept centres need at least one slot each, but there are 2"):
        split_slots([1, 1, 1], 2)


def test_kept_centres_are_those_with_the_largest_counts() -> None:
    counts = [[3, 9, 9, -1, 4], [0, 0, 0, 0, 0]]
    assert most_counted(counts, 2).tolist() == [[1, 2], [0, 1]]
    assert most_counted(counts, 3).tolist() == [[1, 2, 4], [0, 1, 2]]
    with pytest.raises(ValueError, match="at most the number of centres in the file, 5, not 6"):
        most_counted(counts, 6)


def test_slots_are_split_by_counts_that_are_folded_into_the_nearest_kept_centre() -> None:
    """Three centres near one another hold 30 records, a fourth far away 20. Two are kept, one of either place, and the
    three's records all come to one of them: it gets six slots of ten, not the three and a third of its own count."""
    near = unit_rows(np.array([[1.0, 0.0, 0.1], [1.0, 0.1, 0.0], [1.0, 0.05, 0.05], [0.0, 1.0, 0.0]]))
    clusters = Clusters(Centres(near.astype(np.float32), SMALL.name, SMALL.fingerprint), SMALL)
    for counts in ([10, 9, 11, 20], [10, -3, 23, 20]):
        cells = clusters.cells([], (), [counts], kept=2, slots=10)
        assert cells.slots == (6, 4)
    split = clusters.cells([], ("a", "b"), [[10, 9, 11, 20], [0, 0, 5, 45]], kept=2, slots=10).slots
    assert split == (6, 4, 1, 9)


def test_records_move_to_the_nearest_kept_centre_of_their_label() -> None:
    centres = Centres.fit(PUBLIC, 6, embedder=SMALL)
    clusters = Clusters(centres, SMALL)
    records = [Record(str(i), text, "ab"[i % 2]) for i, (_, text) in enumerate(PRIVATE[:50])]
    counts = [[9, 0, 8, 0, 0, 0], [0, 5, 0, 5, 0, 0]]
    cells = clusters.cells(records, ("a", "b"), counts, kept=2, slots=5)
    assert cells.slots == (3, 2, 3, 2)
    kept = [[0, 2], [1, 3]]
    for index, record in enumerate(records):
        label = "ab".index(record.label or "")
        distances = [np.linalg.norm(SMALL.embed([record.text])[0] - centres.vectors[c]) for c in kept[label]]
        assert cells.of_record[index] == label * 2 + int(np.argmin(distances))
    exact = clusters.units(records, ("a", "b"), bytes(32), Unit())
    assert exact.shape == (2, 6)
    assert exact.sum(axis=1).tolist() == [25, 25]


def test_a_report_counts_sizes() -> None:
    report = cluster_report([0, 0, 0, 2, 2, 1], 5, ["x", "x", "x", "y", "y", "z"], large_from=3)
    assert (report.records, report.used, report.large, report.sizes) == (6, 2, 1, (3, 2, 1, 0, 0))
    assert report.v_measure == pytest.approx(1)
    assert report.largest_share == 0.5
    assert cluster_report([0, 1], 2).v_measure is None
    with pytest.raises(ValueError, match="0 to 1"):
        cluster_report([0, 2], 2)
    with pytest.raises(ValueError, match="one group for each of 2 records, not 1"):
        cluster_report([0, 1], 2, ["x"])
