"""The cost of a median for rows that are added or removed, used where a record is exchanged."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path

import pytest
from exhibits import Exhibit, on_the_page
from neighbouring import KEY
from table_model import FirstToken, Runs, showing

from dpassay.accounting.adjacency import Adjacency
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.base.number_format import format_lower
from dpassay.data.records import Record
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

MODEL = showing({"P": (-6, 6), "Q": (0, 6), "R": (6, 6)})
RECORDS = [Record(f"id-{i}", text) for i, text in enumerate("PQQR")]
NEIGHBORS = [
    [*RECORDS[:i], Record("new", text), *RECORDS[i + 1 :]]
    for i in range(4)
    for text in "PQR"
    if text != RECORDS[i].text
]


@functools.cache
def found() -> tuple[list[Finding], list[Finding]]:
    """Of the published cost, and of the one of exchanges: rows (−6, 6), (0, 6), (0, 6), (6, 6) in one batch."""
    mechanism = PrivateInference(
        aggregate="median",
        clip=6.0,
        temperature=1.5,
        batch_size=4,
        tokens=1,
        records=4,
        adjacency=Adjacency.REPLACE_ONE,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).begin(mechanism, noise="recorded")
        generation = generate(mechanism, RECORDS, MODEL, run, key=KEY, source=FirstToken(0))
    assert generation.transcript.tokens == ((0,),)
    wrong, right = (
        inference_findings(mechanism, RECORDS, NEIGHBORS, MODEL, generation, key=KEY, accounting=account)
        for account in ("published", "charged")
    )
    return wrong, right


def test_replay_finds_that_the_middle_moves_where_nothing_is_charged() -> None:
    """The middle two rows agree, so that one row more or less moves nothing. (6, 6) becomes (−6, 6), and the median of
    token 0 goes from 0 to −3: log(1 + e^(9/1.5)) − log(1 + e^(6/1.5)) is 1.984326."""
    (wrong,), right = found()
    assert wrong.kind == "cost"
    assert float(wrong.declared) < 1e-9  # 0 up to its float error
    exact = math.log1p(math.exp(9 / 1.5)) - math.log1p(math.exp(6 / 1.5))
    assert wrong.measured == pytest.approx(exact, abs=1e-9) == pytest.approx(1.984326, abs=1e-6)
    assert not right


@functools.cache
def exhibit() -> Exhibit:
    (wrong,), _ = found()
    assert isinstance(wrong.measured, float)
    assert isinstance(wrong.declared, float)
    return Exhibit(
        "the median's cost under add_remove used under replace_one, batches of even size",
        'Theorem 2 of "Clustering and Median Aggregation Improve Differentially Private Inference", which is for '
        "add_remove and says so",
        "replay of every token",
        f"{round(wrong.declared, 6):g} (ex post)",
        format_lower(wrong.measured),
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
