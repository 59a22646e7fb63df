"""Two records share a context, so that one that leaves *replaces* a row, and rows are accounted as added or removed."""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exhibits import Exhibit, on_the_page
from neighbouring import KEY
from scipy import optimize, stats
from table_model import FirstToken, Runs, showing

from dpassay.accounting import DominatingPair, accountant, events
from dpassay.attacks.private_inference.leave_one_out import reruns
from dpassay.attacks.private_inference.step_laws import StepLaws, log_laws
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.base.number_format import format_lower
from dpassay.data.batching import keyed_hash
from dpassay.data.records import Record
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

MEDIAN: dict[str, Any] = {"aggregate": "median", "clip": 6.0, "temperature": 1.5, "batch_size": 4, "records": 8}
MEAN: dict[str, Any] = {"aggregate": "mean", "clip": 9.0, "temperature": 1.5, "batch_size": 64, "records": 128}
TOKENS, DELTA = 367, 108_000**-1.1


def chosen(setting: dict[str, Any]) -> PrivateInference:
    return PrivateInference(**setting, records_per_context=2, tokens=1)


def in_contexts(letters: Sequence[str]) -> list[Record]:
    """Records whose names are hashed into contexts with these letters, two in each."""
    names: dict[int, list[str]] = {index: [] for index in range(len(letters))}
    for number in range(100 * len(letters)):
        names[keyed_hash(KEY, "context", f"id-{number}") % len(letters)].append(f"id-{number}")
    return [Record(names[i][j], text[j]) for i, text in enumerate(letters) for j in range(2)]


@functools.cache
def median() -> tuple[float, float, list[Finding], list[Finding], float]:
    """The published cost, the loss, what replay finds of both accounts, and the realised cost. The middle two of four
    contexts agree; when one record of the last leaves, its row goes from (6, 6) to (−6, 6)."""
    mechanism, records = chosen(MEDIAN), in_contexts(("PP", "QQ", "RR", "ST"))
    model = showing({"PP": (-6, 6), "QQ": (0, 6), "RR": (0, 6), "ST": (6, 6), "T": (-6, 6)})
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).begin(mechanism, noise="recorded")
        generation = generate(mechanism, records, model, run, key=KEY, source=FirstToken(0))
        (realised,) = run.realised().values()
    leaves = next(index for index, record in enumerate(records) if record.text == "S")
    near = [records[:leaves] + records[leaves + 1 :]]
    result, charged = (
        inference_findings(mechanism, records, near, model, generation, key=KEY, accounting=account)
        for account in ("published", "charged")
    )
    assert generation.spent is not None
    loss = reruns(mechanism, records, [leaves], model, generation, KEY)[0].value
    return float(generation.spent[0, 2]), loss, result, charged, realised.u_minus


@functools.cache
def mean() -> tuple[list[Finding], list[Finding], list[np.ndarray]]:
    """What replay finds of both accounts, and the laws of a token with the record and without: of 64 contexts one turns
    from (9, −9) to (−9, 9), and the others say nothing."""
    mechanism, records = chosen(MEAN), in_contexts(["ST"] + ["QQ"] * 63)
    model = showing({"ST": (18, 0), "T": (0, 18), "QQ": (0, 0)})
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(Path(folder)).begin(mechanism, noise="recorded")
        generation = generate(mechanism, records, model, run, key=KEY, source=FirstToken(0))
    near = records[1:]
    result, charged = (
        inference_findings(mechanism, records, [near], model, generation, key=KEY, accounting=account)
        for account in ("published", "charged")
    )
    both = [StepLaws(mechanism, data, model, generation.transcript, key=KEY) for data in (records, near)]
    laws = [next(log_laws(steps.forced([0]), steps.inputs))[2] for steps in both]
    return result, charged, laws


def test_the_median_loses_what_is_published_as_nothing() -> None:
    published, loss, result, charged, realised = median()
    exact = math.log1p(math.exp(9 / 1.5)) - math.log1p(math.exp(6 / 1.5))  # of (0, 6) against (−3, 6)
    assert published < 1e-9  # 0 up to its float error
    assert loss == pytest.approx(exact, abs=1e-9) == pytest.approx(1.984326, abs=1e-6)
    assert [finding.kind for finding in result] == ["cost"]
    assert result[0].measured == pytest.approx(exact, abs=1e-9)
    assert not charged
    assert loss <= realised + 1e-9


def test_the_mean_has_twice_the_published_range() -> None:
    result, charged, _ = mean()
    assert [finding.kind for finding in result] == ["range"]
    assert result[0].declared == pytest.approx(2 * 9 / (64 * 1.5), rel=1e-12)
    assert result[0].measured == pytest.approx(4 * 9 / (64 * 1.5), rel=1e-9)
    assert not charged


def claimed() -> float:
    """What zCDP makes of the published range for the tokens of a run."""
    event = events.BoundedRangeSelectionDpEvent(2 * 9 / (64 * 1.5))
    return accountant("zcdp", "add_remove").compose(event, TOKENS).epsilon(DELTA).value


@functools.cache
def exact() -> float:
    """A lower bound on the ε of these two data sets for 367 tokens, of one law each; less what floats may err by, as
    derived in `test_actual_batch_size.py`."""
    pair = DominatingPair.finite(*map(np.exp, mean()[2]))
    return pair.self_compose(TOKENS).epsilon(DELTA * (1 + 1e-7)).lower - 1e-7


def test_a_claim_of_9_9_loses_21_8() -> None:
    """Each token is a coin with log-odds ±2c/(sτ): δ(ε) = Σ_k P(k)·max(0, 1 − e^(ε − (2k − n)·odds)), k heads of n."""
    odds = 2 * 9 / (64 * 1.5)
    heads = np.arange(TOKENS + 1)
    law = stats.binom.pmf(heads, TOKENS, 1 / (1 + math.exp(-odds)))

    def excess(epsilon: float) -> float:
        return float((law * -np.expm1(np.minimum(0.0, epsilon - (2 * heads - TOKENS) * odds))).sum() - DELTA)

    assert claimed() == pytest.approx(9.888715, abs=1e-5)
    assert exact() == pytest.approx(optimize.brentq(excess, 0, 60, xtol=1e-12), abs=1e-4)
    assert exact() == pytest.approx(21.834, abs=1e-3)


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "two records in a context, whose row is accounted as added or removed",
        'Table 10 of "Clustering and Median Aggregation Improve Differentially Private Inference", rows with k = 2',
        "leave-one-out, the whole pipeline rerun; replay of every token",
        f"{round(median()[0], 6):g} (ex post; median, one token); {claimed():.1f} (δ = {DELTA:.2g}; mean, 367 tokens)",
        f"{format_lower(median()[1])}; {format_lower(exact(), 4)}",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
