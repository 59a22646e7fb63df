"""Where the published accounting of medians is no bound: batches of a fixed size, and contexts of two records.

Minimal data sets that show it are among the known bugs (`tests/known_bugs`).

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Theorem 2 (add and remove one
record; γ of Definition 4), with the batches of section 6.1 and the two examples a context of Table 10.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from neighbouring import FLOAT, log_ratio, written

from dpassay.data.records import Record
from dpassay.mechanisms.private_inference.generator import PrivateInference

SETTING: dict[str, Any] = {"aggregate": "median", "clip": 6.0, "temperature": 1.5}
PIECES = {"variant": "as_published", "batch_size": 4, "records": 12}
TWO = {"batch_size": 4, "records_per_context": 2, "records": 8}


@pytest.mark.slow
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
        assert generation.spent is not None
        published = float(generation.spent[:, 2].max())
        losses = [
            log_ratio(chosen, model, records, records[:i] + records[i + 1 :], generation.transcript)
            for i in range(len(records))
        ]
        assert all(-plus - FLOAT <= loss <= minus + FLOAT for loss in losses)
        exceeded += any(abs(loss) > published + FLOAT for loss in losses)
    assert exceeded > 12
