"""Tokens are kept by the aggregate of private rows in the place of public logits, and that choice is not accounted."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from exhibits import Exhibit, at_least, claimed, on_the_page, told_apart, verdict
from neighbouring import KEY
from table_model import FirstToken, Runs, showing

from dpassay.accounting import PureDP
from dpassay.accounting.bounds import Bound
from dpassay.accounting.ex_post.clipped_rows import Steps
from dpassay.attacks.private_inference.leave_one_out import reruns
from dpassay.attacks.private_inference.step_laws import StepLaws, log_laws
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.base.arrays import Floats, Integers
from dpassay.data.records import Record
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

MECHANISM = PrivateInference(
    aggregate="mean", center="public", top_k=1, clip=3.0, temperature=1.0, batch_size=8, tokens=1, records=8
)
RECORDS = [Record(f"id-{index}", "P" if index == 0 else "Q") for index in range(6)]
MODEL = showing({"P": (0, 18), "Q": (1, 0)})  # and (0, 0) without a record
CLAIM = PureDP(2 * 3.0 / 8)
REAL = aggregation._likely_columns


def private(logits: Any, public: Steps, clip: float, top_k: int) -> tuple[torch.Tensor, Steps, Integers]:
    """The k likeliest tokens of the mean that is drawn from."""
    assert MECHANISM.tail is not None
    scores = public * np.int64(8) + aggregation.centred_rows(logits, public, clip, MECHANISM.tail).sums()
    kept = np.flatnonzero(scores >= np.sort(scores)[-top_k])
    return torch.as_tensor(logits)[:, kept], public[kept], kept


@functools.cache
def played(*, bug: bool) -> tuple[list[Finding], float, tuple[Floats, Floats]]:
    """What replay finds, the loss of the record P when the pipeline is run again without it, and both laws."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(aggregation, "_likely_columns", private if bug else REAL),
    ):
        run = Runs(Path(folder)).begin(MECHANISM, noise="recorded")
        generation = generate(MECHANISM, RECORDS, MODEL, run, key=KEY, source=FirstToken(0))
        findings = inference_findings(MECHANISM, RECORDS, [RECORDS[1:]], MODEL, generation, key=KEY)
        loss = reruns(MECHANISM, RECORDS, [0], MODEL, generation, KEY)[0]
        both = [StepLaws(MECHANISM, data, MODEL, generation.transcript, key=KEY) for data in (RECORDS, RECORDS[1:])]
        laws = [next(log_laws(steps.forced([0]), steps.inputs))[2] for steps in both]
    assert loss.error < 1e-6
    return findings, loss.value, (np.exp(laws[0]), np.exp(laws[1]))


def test_replay_and_a_rerun_find_that_a_token_is_possible_on_one_side_only() -> None:
    """Five records prefer the first of two tokens by 1, one the second by 6: with it the second is kept, else the
    first. By public logits both are, and the loss is below the claim."""
    (finding,), loss, _ = played(bug=True)
    assert (finding.kind, finding.measured, loss) == ("range", math.inf, math.inf)
    findings, loss, laws = played(bug=False)
    assert not findings
    with_it, without = 1 / (1 + math.exp((6 - 5) / 8)), 1 / (1 + math.exp(-5 / 8))
    assert laws[0][0] == pytest.approx(with_it, abs=1e-6)
    assert laws[1][0] == pytest.approx(without, abs=1e-6)
    assert loss == pytest.approx(math.log(with_it / without), abs=1e-6)
    assert abs(loss) < CLAIM.epsilon


@functools.cache
def sampled() -> tuple[Bound, ...]:
    """By the token."""

    def tokens(law: Floats, runs: int, rng: np.random.Generator) -> list[int]:
        return [int(token) for token in rng.choice(2, size=runs, p=law)]

    return tuple(
        told_apart(tokens, *played(bug=bug)[2], CLAIM, runs=3000, score=lambda token: -token) for bug in (True, False)
    )


def test_the_two_data_sets_are_told_apart() -> None:
    wrong, right = sampled()
    assert verdict(CLAIM, wrong) == "REFUTED"
    assert wrong.value == wrong.ceiling
    assert verdict(CLAIM, right) == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "tokens outside of the k likeliest of a private aggregate are left out, and that choice is not accounted",
        "no single source: top-k sampling from aggregated predictions",
        "replay of every token; leave-one-out, the whole pipeline rerun; distinguishing",
        claimed(CLAIM),
        f"{at_least(sampled()[0])}, all that so many runs can show; no ε holds",
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
