"""Where the published accounting of medians is no bound: batches of a fixed size, and contexts of two records.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Theorem 2 (add and remove one
record; γ of Definition 4), with the batches of section 6.1 and the two examples a context of Table 10.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from neighbouring import FLOAT, KEY, log_ratio, written
from table_model import FirstToken, showing

from cupel.mechanisms.batching import keyed_hash
from cupel.mechanisms.private_inference import PrivateInference
from cupel.mechanisms.records import Record

SETTING: dict[str, Any] = {"aggregate": "median", "clip": 6.0, "temperature": 1.5}
PIECES = {"variant": "as_published", "batch_size": 4, "records": 12}
TWO = {"batch_size": 4, "records_per_context": 2, "records": 8}


@pytest.mark.parametrize("case", [PIECES, TWO], ids=["pieces of a fixed size", "contexts of two"])
def test_the_published_accounting_is_exceeded_and_ours_is_not(
    table_model: Any, runs: Any, case: dict[str, Any]
) -> None:
    """A removal changes several pieces of a fixed size, or *replaces* a row of two records. Where records agree, as
    these of two kinds do, more than a fifth of random data sets have a removal that loses more than max Σγ."""
    chosen = PrivateInference(**SETTING, tokens=2, **case)
    exceeded = 0
    for seed in range(60):
        model, draw = table_model(seed=seed), random.Random(seed)
        records = [Record(f"{seed}-{i}", draw.choice("12")) for i in range(chosen.records)]
        generation, minus, plus = written(chosen, model, records, runs, seed)
        published = float(generation.spent[:, 2].max())
        losses = [
            log_ratio(chosen, model, records, records[:i] + records[i + 1 :], generation.transcript)
            for i in range(len(records))
        ]
        assert all(-plus - FLOAT <= loss <= minus + FLOAT for loss in losses)
        exceeded += any(abs(loss) > published + FLOAT for loss in losses)
    assert exceeded > 12


def test_one_record_more_shifts_twenty_pieces(runs: Any) -> None:
    """Pieces of 64 with 33 votes one way and 31 the other, by turns: every published γ is 0 up to float error. One
    record in front makes all twenty a tie, and each loses log(2/(1 + e⁻⁸)): 13.856235, said to be 0."""
    batches, size = 20, 64
    chosen = PrivateInference(**SETTING, variant="as_published", batch_size=size, tokens=1, records=batches * size)
    ids = [f"id-{i}" for i in range(batches * size + 1)]
    first, *rest = sorted(ids, key=lambda name: keyed_hash(KEY, "shuffle", name))
    blocks = itertools.islice(itertools.cycle(("B" * 31 + "A" * 33, "A" * 31 + "B" * 33)), batches)
    records = [Record(name, text) for name, text in zip(rest, "".join(blocks), strict=True)]
    model = showing({"A": (6, -6), "B": (-6, 6)})
    generation, minus, _ = written(chosen, model, records, runs, 1)
    # By the majority in each; Recorded(1) draws no other, which had a chance of 20/(1 + e⁸) < .7%.
    assert list(generation.transcript.tokens) == [(0,), (1,)] * (batches // 2)
    assert generation.spent[:, 2].max() < 1e-9
    loss = log_ratio(chosen, model, records, [Record(first, "B"), *records], generation.transcript)
    assert loss == pytest.approx(batches * math.log(2 / (1 + math.exp(-8))), abs=FLOAT)
    assert loss == pytest.approx(13.856235, abs=1e-6)
    assert loss <= minus + FLOAT


def test_a_record_that_leaves_a_context_of_two_replaces_its_row(runs: Any) -> None:
    """Four contexts whose middle two agree, so that the published γ is 0. When one record of the last leaves, its row
    goes from (6, 6) to (−6, 6), and the log-probability of token 0 falls by 1.984326."""
    chosen = PrivateInference(**SETTING, batch_size=4, records_per_context=2, tokens=1, records=8)
    names: dict[int, list[str]] = {0: [], 1: [], 2: [], 3: []}
    for name in (f"id-{i}" for i in range(100)):
        names[keyed_hash(KEY, "context", name) % 4].append(name)
    letters = ("PP", "QQ", "RR", "ST")
    records = [Record(names[i][j], letters[i][j]) for i in range(4) for j in range(2)]
    model = showing({"PP": (-6, 6), "QQ": (0, 6), "RR": (0, 6), "ST": (6, 6), "T": (-6, 6)})
    run = runs.begin(chosen, noise="recorded")
    generation = chosen.generate(records, model, run, key=KEY, source=FirstToken(0))
    (own,) = run.realised().values()
    assert generation.transcript.tokens == ((0,),)
    assert generation.spent[0, 2] < 1e-9
    left = [record for record in records if record.text != "S"]
    loss = log_ratio(chosen, model, records, left, generation.transcript)
    assert loss == pytest.approx(1.984326, abs=1e-6)
    assert loss <= own.u_minus + FLOAT
