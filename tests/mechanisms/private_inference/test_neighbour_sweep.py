"""All neighbours of a thousand random data sets: what a run leaks, by a second implementation, against what it cost.

The runs are real: slots, decode loop, sampler, ledger. Their log-ratios are worked out by `inference_oracle`, which
shares only the model's table with them. Neighbours are those that remove any unit; those that add, or put in the place
of any unit, each of the 14 texts that records here may have, in each slot (and context) that it can be hashed to; and
an *adversary*, a record whose clipped logits after every prefix are whichever of all corners {−c, c}^V loses most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_oracle import Pipeline, Row, hashed
from neighbouring import FLOAT, KEY, pure_epsilon, random_records, written
from property_settings import number

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.data.records import Record
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.private_inference.generator import PrivateInference

DATA_SETS = 125  # of each of the four cases at each adjacency: 500 under add_remove, 500 under replace_one
TRIED = number(10, DATA_SETS)
CLIP, TEMPERATURE, EPSILON = 4.0, 1.3, 0.6
TEXTS = ["".join(digits) for length in (1, 2, 3) for digits in itertools.product("12", repeat=length)]
REPLACE = {"adjacency": Adjacency.REPLACE_ONE}
MEDIAN: dict[str, Any] = {"aggregate": "median", "clip": CLIP, "temperature": TEMPERATURE, "tokens": 3, "records": 6}


@pytest.fixture(scope="module")
def centres(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("centres") / "centres.safetensors"
    public = ["".join(digits) for digits in itertools.product("12", repeat=3)]
    Centres.fit(public, 4, embedder=HashedNgrams(dimension=16, buckets=256, shortest=1), seed=1).save(path)
    return path


def newcomers(pipeline: Pipeline, chosen: PrivateInference) -> list[Record]:
    """A record of each text and label in each slot that its cell has, and there in each context."""
    results: dict[tuple[object, ...], Record] = {}
    contexts = pipeline.contexts_of_slot if chosen.records_per_context > 1 else 1
    for label, text in itertools.product(chosen.labels or (None,), TEXTS):
        cell = pipeline.cell(Record("", text, label))
        wanted, number = pipeline.slots_of_cell[cell] * contexts, 0
        while sum(key[:2] == (label, text) for key in results) < wanted:
            new = Record(f"new-{number}", text, label, f"new-{number}")
            index = hashed(KEY, "context", new.user or "" if chosen.unit.kind == "user" else new.id) % contexts
            results.setdefault((label, text, pipeline.slot(new), index), new)
            number += 1
    return list(results.values())


def neighbours(chosen: PrivateInference, records: list[Record], new: Sequence[Record]) -> Iterator[list[Record]]:
    """All of them, under the mechanism's adjacency and unit."""
    units = {record.user if chosen.unit.kind == "user" else record.id for record in records}
    without = [
        [record for record in records if (record.user if chosen.unit.kind == "user" else record.id) != unit]
        for unit in sorted(map(str, units))
    ]
    if chosen.adjacency is Adjacency.ADD_REMOVE:
        yield from without
        without = [records]
    yield from ([*rest, extra] for rest in without for extra in new)


def corners_of(clip: float) -> list[Row]:
    return [list(corner) for corner in itertools.product((-clip, clip), repeat=4) if clip in corner]


Pair = tuple[float, float]
"""The largest log P_D/P_D′, and the largest log P_D′/P_D."""


def largest(pairs: Sequence[Pair]) -> Pair:
    """Side by side; −∞ for none."""
    return max((there for there, _ in pairs), default=-math.inf), max((back for _, back in pairs), default=-math.inf)


def slot_loss(
    pipeline: Pipeline, records: list[Record], slot: int, tokens: Sequence[int], without: int | None, corners: list[Row]
) -> Pair:
    """Of a slot's tokens when a context leaves it and one joins that shows the worst of some corners at each token."""
    sums = [0.0, 0.0]
    contexts = pipeline.rows(records, slot)
    for token, tail in zip(tokens, pipeline.tails(tokens), strict=True):
        batch = pipeline.clipped_rows(contexts, tail)
        rest = [row for i, row in enumerate(batch) if i != without]
        own = pipeline.log_law(batch, tail)[token]
        losses = [own - pipeline.log_law(rows, tail)[token] for rows in [[*rest, c] for c in corners] or [rest]]
        sums = [sums[0] + max(losses), sums[1] + max(-loss for loss in losses)]
    return sums[0], sums[1]


def adversaries(pipeline: Pipeline, records: list[Record], tokens: Sequence[Sequence[int]]) -> Pair:
    """Over neighbours that remove any record, add one that shows corners, or put it in the place of any, in any slot.

    Each record is a context of its own here.
    """
    slots, corners = range(len(tokens)), corners_of(pipeline.chosen.clip)
    indices = [range(len(pipeline.rows(records, slot))) for slot in slots]
    added = [slot_loss(pipeline, records, slot, tokens[slot], None, corners) for slot in slots]
    removed = [largest([slot_loss(pipeline, records, s, tokens[s], i, []) for i in indices[s]]) for s in slots]
    if pipeline.chosen.adjacency is Adjacency.ADD_REMOVE:
        return largest([*added, *removed])
    exchanged = [slot_loss(pipeline, records, s, tokens[s], i, corners) for s in slots for i in indices[s]]
    moved = [
        (removed[first][0] + added[second][0], removed[first][1] + added[second][1])
        for first, second in itertools.permutations(slots, 2)
    ]
    return largest([(0.0, 0.0), *exchanged, *moved])


def laplace_loss(noisy: Sequence[int], own: Sequence[int], other: Sequence[int], scale: float) -> float:
    """log of the ratio of two discrete Laplace laws around exact counts at the same noisy ones."""
    return math.fsum((abs(x - b) - abs(x - a)) / scale for x, a, b in zip(noisy, own, other, strict=True))


class Clusters:
    """The public side of clustering: the nearest centre of each text, by itself, and what released counts decide."""

    def __init__(self, path: Path, chosen: PrivateInference) -> None:
        file = Centres.load(path)
        self._centres, embedder = file.vectors.astype(np.float64), file.own_embedder("builtin")
        self._vectors = {text: embedder.embed([text])[0].astype(np.float64) for text in TEXTS}
        self.labels = chosen.labels or (None,)
        self.kept, self.slots = chosen.kept_centres or 0, chosen.slots

    def nearest(self, text: str, centres: Sequence[int]) -> int:
        """The place in `centres` of the one that is nearest to a text (no two are equally near here)."""
        far = [float(np.square(self._vectors[text] - self._centres[centre]).sum()) for centre in centres]
        return far.index(min(far))

    def counts(self, records: Sequence[Record]) -> list[int]:
        """How many records of each label are nearest to each centre, all labels in a row."""
        every = range(len(self._centres))
        results = [(self.labels.index(record.label), self.nearest(record.text, every)) for record in records]
        return [results.count((label, centre)) for label in range(len(self.labels)) for centre in every]

    def pipeline(self, chosen: PrivateInference, model: Any, noisy: Sequence[Sequence[int]]) -> Pipeline:
        """The pipeline given released counts: with as many slots as kept centres, each cluster has one slot."""
        assert self.slots == self.kept
        kept = [sorted(sorted(range(len(row)), key=lambda c: -row[c])[: self.kept]) for row in noisy]

        def cell(record: Record) -> int:
            label = self.labels.index(record.label)
            return label * self.kept + self.nearest(record.text, kept[label])

        return Pipeline(chosen, model, KEY, cell, [1] * chosen.total_slots)


def labelled(chosen: PrivateInference, model: Any) -> Pipeline:
    labels: tuple[str | None, ...] = chosen.labels or (None,)
    return Pipeline(chosen, model, KEY, lambda r: labels.index(r.label), [chosen.slots] * len(labels))


CASES: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 3},
    "labels": {"batch_size": 2, "labels": ("a", "b")},
    "clusters": {"batch_size": 3, "kept_centres": 2, "cluster_count_epsilon": EPSILON},
    "users": {"batch_size": 2, "unit": Unit("user")},
    "labels in clusters": {
        "batch_size": 1,
        "records": 4,
        "labels": ("a", "b"),
        "kept_centres": 2,
        "cluster_count_epsilon": EPSILON,
    },
    "contexts of two": {"batch_size": 2, "records_per_context": 2, "records": 8},
    "centred": {"batch_size": 3, "center": "public"},
    "centred users": {"batch_size": 2, "unit": Unit("user"), "center": "public"},
    "centred contexts of two": {"batch_size": 2, "records_per_context": 2, "records": 8, "center": "public"},
    "top k": {"batch_size": 3, "center": "public", "clip": 1.0, "top_k": 2},
    "top k of users": {"batch_size": 2, "unit": Unit("user"), "center": "public", "clip": 1.0, "top_k": 2},
    "top k, contexts of two": {
        "batch_size": 2,
        "records_per_context": 2,
        "records": 8,
        "center": "public",
        "clip": 1.0,
        "top_k": 2,
    },
}
SWEEP = [
    *((case, {}) for case in ("plain", "clusters", "users", "contexts of two")),
    *((case, REPLACE) for case in ("plain", "labels", "clusters", "labels in clusters")),
    *((case, {}) for case in ("centred", "centred users", "centred contexts of two")),
    ("centred", REPLACE),
    *((case, {}) for case in ("top k", "top k of users", "top k, contexts of two")),
    ("top k", REPLACE),
]
SWEEP_IDS = [f"{case}-{'replace_one' if adjacency else 'add_remove'}" for case, adjacency in SWEEP]


@pytest.mark.grid
@pytest.mark.parametrize(("case", "adjacency"), SWEEP, ids=SWEEP_IDS)
def test_no_neighbour_loses_more_than_the_realised_cost(
    table_model: Any, runs: Any, centres: Path, case: str, adjacency: dict[str, Any]
) -> None:
    """Medians, sound: |log-ratio| of everything released ≤ ε₀ of the counts + the realised cost ≤ the plan."""
    parameters = MEDIAN | CASES[case] | adjacency
    clustered = "kept_centres" in parameters
    chosen = PrivateInference(**parameters, centres=centres if clustered else None)
    clusters, counted = Clusters(centres, chosen) if clustered else None, EPSILON if clustered else 0.0
    planned, tightest = pure_epsilon(chosen.plan(), chosen.adjacency), 0.0
    for seed in range(TRIED):
        model = table_model(seed=seed % 5)
        records = random_records(seed, labels=chosen.labels, users=chosen.unit.kind == "user")
        generation, minus, plus = written(chosen, model, records, runs, seed)
        transcript = generation.transcript
        assert max(minus, plus) + counted <= planned + FLOAT
        if clusters is None:
            pipeline = labelled(chosen, model)
        else:
            assert transcript.cluster_counts is not None
            pipeline = clusters.pipeline(chosen, model, transcript.cluster_counts)
        for other in neighbours(chosen, records, newcomers(pipeline, chosen)):
            loss = pipeline.loss(records, other, transcript.tokens)
            assert -plus - FLOAT <= loss <= minus + FLOAT
            if clusters is not None:
                assert transcript.cluster_counts is not None
                released = np.ravel(transcript.cluster_counts).tolist()
                moved = laplace_loss(
                    released, clusters.counts(records), clusters.counts(other), (2 if adjacency else 1) / EPSILON
                )
                assert abs(moved) <= EPSILON + FLOAT
        if chosen.records_per_context == 1 and chosen.unit.kind == "record":
            there, back = adversaries(pipeline, records, transcript.tokens)
            assert there <= minus + FLOAT
            assert back <= plus + FLOAT
            tightest = max(tightest, there / minus, back / plus)
    if TRIED == DATA_SETS:  # the bound is not idle: some data set, output and adversary come within 2% of it
        assert tightest > 0.98 or case.endswith(("users", "contexts of two"))


@pytest.mark.grid
@pytest.mark.parametrize(("case", "adjacency"), SWEEP, ids=SWEEP_IDS)
def test_no_output_of_a_mean_exceeds_the_plan(
    table_model: Any, centres: Path, case: str, adjacency: dict[str, Any]
) -> None:
    """Means, sound: the largest |log-ratio| over *all* outputs, given counts, ≤ the plan without the counts' ε₀."""
    parameters = MEDIAN | CASES[case] | adjacency | {"aggregate": "mean", "tokens": 2, "denominator": 2}
    clustered = "kept_centres" in parameters
    chosen = PrivateInference(**parameters, centres=centres if clustered else None)
    clusters = Clusters(centres, chosen) if clustered else None
    planned = pure_epsilon(chosen.plan(), chosen.adjacency) - (EPSILON if clustered else 0.0)
    worst = 0.0
    for seed in range(TRIED):
        model = table_model(seed=seed % 5, vocabulary=3, spread=100.0)
        records = random_records(seed, labels=chosen.labels, users=chosen.unit.kind == "user")
        if clusters is None:
            pipeline = labelled(chosen, model)
        else:
            noisy = np.random.default_rng(seed).integers(-2, 8, size=(len(clusters.labels), 4))
            pipeline = clusters.pipeline(chosen, model, noisy.tolist())
        for other in neighbours(chosen, records, newcomers(pipeline, chosen)):
            there, back = pipeline.worst_losses_of(records, other)
            worst = max(worst, there, back)
    assert worst <= planned + FLOAT
    # Centred rows of a table with such a spread are c at their own token, −c at the public one and 0 elsewhere, so one
    # that is replaced moves two scores by 3c where 4c are charged.
    # Where only two tokens are kept, rows of this table are farther from the worst case.
    least = (0.6 if chosen.top_k else 0.7) if chosen.center and chosen.replaces_rows else 0.85
    assert worst > least * planned or TRIED < DATA_SETS
