"""The page on files of other libraries shows what the command and Opacus answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from opacus.accountants import RDPAccountant

from cupel.accounting.number_format import format_upper
from cupel.claims.read import read_claim
from cupel.errors import InputError
from cupel.jobs.account import account

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")
STEPS = (1.0, 0.01, 500)


def test_the_table_of_samplers(tmp_path: Path) -> None:
    assert "500 steps, a sample rate of .01 and a noise multiplier of 1" in PAGE
    (tmp_path / "state.json").write_text(json.dumps({"history": [STEPS], "mechanism": "rdp"}))
    rows = re.findall(r"^\|[^|]*\| `(\w+)`[^|]*\| (\w+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for sampler, adjacency, shown in rows:
        records = 10_000 if sampler == "fixed" else None
        found = account(tmp_path / "state.json", delta=1e-5, sampler=sampler, adjacency=adjacency, records=records)
        least = min(bound.value for bound in found.bounds if bound.rigor.may_support)
        assert format_upper(least) == shown


def test_opacus_answers_the_same_whatever_the_sampler() -> None:
    accountant = RDPAccountant()
    accountant.history = [STEPS]
    (shown,) = re.findall(r"Opacus' own accountant answers ([\d.]+) for all", PAGE)
    assert accountant.get_epsilon(1e-5) == pytest.approx(float(shown), abs=1e-5)


def test_the_declared_claim_has_known_keys(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "claim.yaml").write_text(shown)
    (tmp_path / "checkpoint.pt").write_text(json.dumps({"history": [STEPS], "mechanism": "rdp"}))
    claim = read_claim(tmp_path / "claim.yaml")
    labels = [part.label for part in claim.parameters.events]
    assert labels == ["fine-tuning", "warm-up", "label counts", "synthetic texts"]
    with pytest.raises(InputError, match="ledger"):
        claim.plan()
