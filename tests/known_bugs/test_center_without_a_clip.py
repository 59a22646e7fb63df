"""What a record adds to public logits enters their mean, and the clip on which its cost rests is not applied."""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from exhibits import Exhibit, on_the_page
from neighbouring import KEY
from table_model import FirstToken, Runs, showing

from dpassay.accounting import PureDP
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ex_post.clipped_rows import Steps, centred_steps
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut
from dpassay.audits.games import leave_one_out_audit
from dpassay.audits.games.replay.private_inference import inference_findings
from dpassay.audits.games.replay.record_replay import Finding
from dpassay.audits.verdict import decide
from dpassay.base.number_format import format_lower
from dpassay.data.records import Record
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

MECHANISM = PrivateInference(
    aggregate="mean", center="public", clip=3.0, temperature=1.0, batch_size=8, tokens=1, records=8
)
RECORDS = [Record(f"id-{index}", "P" if index == 0 else "Q") for index in range(8)]
MODEL = showing({"P": (0, 18), "Q": (0, 0)})  # and (0, 0) without a record
CLAIM = PureDP(2 * 3.0 / 8)


def unclipped(logits: Any, public: Steps, clip: float, tail: float) -> Steps:
    return centred_steps(logits, public, 64.0, tail)


@functools.cache
def played(*, bug: bool) -> tuple[list[Finding], float, str]:
    """What replay finds, the loss of the record P at the token 0, and the verdict of leave-one-out."""
    attack = LeaveOneOut.of(MECHANISM, len(RECORDS))
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(aggregation, "centred_steps", unclipped if bug else centred_steps),
    ):
        run = Runs(Path(folder)).begin(MECHANISM, noise="recorded")
        generation = generate(MECHANISM, RECORDS, MODEL, run, key=KEY, observers=[attack], source=FirstToken(0))
        findings = inference_findings(MECHANISM, RECORDS, [RECORDS[1:]], MODEL, generation, key=KEY)
    result = leave_one_out_audit(
        attack.by_slot(),
        [],
        records=len(RECORDS),
        guarantee=CLAIM,
        adjacency=Adjacency.ADD_REMOVE,
        unit=Unit(),
        errors=attack.errors_by_slot(),
        rerun_error=0.0,
        ex_post_by_slot=None,
    )
    verdict = decide(CLAIM, adjacency="add_remove", unit=Unit(), bounds=result.bounds).name
    return findings, float(attack.losses[0]), verdict


def test_replay_finds_the_range_of_a_difference_that_is_not_clipped() -> None:
    """18 apart, the record's row is (−9, 9): the range of a mean of eight is 18/8 where 6/8 are charged."""
    (finding,), _, _ = played(bug=True)
    assert finding.kind == "range"
    assert finding.declared == pytest.approx(6 / 8, rel=1e-12)
    assert finding.measured == pytest.approx(18 / 8, rel=1e-9)
    assert not played(bug=False)[0]


def test_leave_one_out_refutes_it() -> None:
    """p(0) is 1/2 without the record, and 1/(1 + e^(18/8)) with it; with the clip the loss is below the claim."""
    _, loss, verdict = played(bug=True)
    assert -loss == pytest.approx(math.log1p(math.exp(18 / 8)) - math.log(2), abs=1e-9)
    assert verdict == "REFUTED"
    _, loss, verdict = played(bug=False)
    assert -loss == pytest.approx(math.log1p(math.exp(6 / 8)) - math.log(2), abs=1e-9)
    assert verdict == "UNPROVEN"


@functools.cache
def exhibit() -> Exhibit:
    return Exhibit(
        "what a record adds to public logits is not clipped, and is accounted as if it were",
        "no single source: predictions relative to those of a public model",
        "leave-one-out; replay of every token",
        f"{CLAIM.epsilon:g} (mean of eight, one token)",
        format_lower(-played(bug=True)[1]),
    )


def test_the_page_says_so() -> None:
    assert on_the_page(exhibit())
