"""Clusters are cut into batches of a fixed size, and accounted as if one record were in one batch."""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from exhibits import Exhibit, on_the_page
from neighbouring import KEY
from table_model import Runs, showing

from dpassay.attacks.private_inference.leave_one_out import losses_between
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.base.number_format import format_lower
from dpassay.data.batching import keyed_hash
from dpassay.data.records import Record
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

BATCHES, SIZE = 20, 64
MODEL = showing({"A": (6, -6), "B": (-6, 6)})


@dataclass(frozen=True)
class Outcomes:
    """What one run shows of one neighbour."""

    tokens: list[tuple[int, ...]]
    published: float
    realised: float
    loss: float
    by_published: dict[str, Finding]
    by_charged: list[Finding]


def data() -> tuple[list[Record], Record]:
    """Batches of 31 B and 33 A take turns with 31 A and 33 B; one B more comes before them all."""
    first, *rest = sorted((f"id-{i}" for i in range(BATCHES * SIZE + 1)), key=lambda x: keyed_hash(KEY, "shuffle", x))
    blocks = itertools.islice(itertools.cycle(("B" * 31 + "A" * 33, "A" * 31 + "B" * 33)), BATCHES)
    return [Record(name, text) for name, text in zip(rest, "".join(blocks), strict=True)], Record(first, "B")


@functools.cache
def outcomes(*, bug: bool) -> Outcomes:
    changes: dict[str, Any] = {"variant": "as_published"} if bug else {}
    chosen = PrivateInference(
        aggregate="median", clip=6.0, temperature=1.5, batch_size=SIZE, tokens=1, records=BATCHES * SIZE, **changes
    )
    records, extra = data()
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).begin(chosen, noise="recorded")
        generation = generate(chosen, records, MODEL, run, key=KEY, source=Recorded(1))
        realised = max(max(cost.u_minus, cost.u_plus) for cost in run.realised().values())
    more = [extra, *records]
    by_published = inference_findings(chosen, records, [more], MODEL, generation, key=KEY, accounting="published")
    assert generation.spent is not None
    return Outcomes(
        tokens=list(generation.transcript.tokens),
        published=float(generation.spent[:, 2].max()),
        realised=realised,
        loss=losses_between(chosen, records, [more], MODEL, generation, KEY)[0].value,
        by_published={finding.kind: finding for finding in by_published},
        by_charged=inference_findings(chosen, records, [more], MODEL, generation, key=KEY),
    )


def test_replay_finds_that_all_batches_change() -> None:
    wrong = outcomes(bug=True)
    assert (wrong.by_published["parts"].declared, wrong.by_published["parts"].measured) == (1.0, 20.0)
    assert float(wrong.by_published["cost"].declared) < 1e-9  # 0 up to its float error
    assert wrong.by_published["cost"].measured == pytest.approx(math.log(2 / (1 + math.exp(-8))), abs=1e-9)
    assert not wrong.by_charged  # our own account of it counts every batch


def test_the_whole_pipeline_without_the_record_loses_what_is_reported_as_nothing() -> None:
    """By the majority in each batch (Recorded(1) draws no other, which had a chance of 20/(1 + e⁸) < .7%): twenty times
    a sure median becomes a tie, and loses log(2/(1 + e⁻⁸)); 13.856235 together."""
    wrong = outcomes(bug=True)
    assert wrong.tokens == [(0,), (1,)] * (BATCHES // 2)
    assert wrong.published < 1e-9
    assert wrong.loss == pytest.approx(BATCHES * math.log(2 / (1 + math.exp(-8))), abs=1e-9)
    assert wrong.loss == pytest.approx(13.856235, abs=1e-6)
    assert wrong.loss <= wrong.realised + 1e-9  # our own account of it holds; 20 logarithms of floats


def test_hashed_batches_of_the_same_records_keep_to_their_cost() -> None:
    right = outcomes(bug=False)
    assert not right.by_charged
    assert "parts" not in right.by_published
    assert abs(right.loss) <= right.realised + 1e-9  # 20 logarithms of floats


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "batches of a fixed size, accounted as if one record were in one of them",
        'section 6.1 of "Clustering and Median Aggregation Improve Differentially Private Inference"',
        "leave-one-out, the whole pipeline rerun; replay of every token",
        f"{round(outcomes(bug=True).published, 6):g} (ex post)",
        f"{format_lower(outcomes(bug=True).loss)}",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
