"""The page on files of other libraries shows what the command and Opacus answer."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import get_args

import pytest
from dp_accounting import GaussianDpEvent
from opacus.accountants import RDPAccountant

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.interop.conditions import Condition
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.registry import upper_bounds
from dpassay.base.errors import InputError
from dpassay.base.number_format import format_upper
from dpassay.cli.options import Statements, options_of
from dpassay.generators.declared.claim import DeclaredClaim
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")
STEPS = (1.0, 0.01, 500)


@pytest.mark.slow
def test_the_table_of_samplers(tmp_path: Path) -> None:
    assert "500 steps, a sample rate of .01 and a noise multiplier of 1" in PAGE
    (tmp_path / "state.json").write_text(json.dumps({"history": [STEPS], "mechanism": "rdp"}))
    rows = re.findall(r"^\|[^|]*\| `(\w+)`([^|]*)\| (\w+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for sampler, options, adjacency, shown in rows:
        result = account(
            tmp_path / "state.json",
            delta=1e-5,
            sampler=sampler,
            adjacency=adjacency,
            records=10_000 if sampler == "fixed" else None,
            normalizer="public" if "--normalizer public" in options else None,
            conditions=re.findall(r"--condition (\w+)", options),
        )
        least = min(bound.value for bound in result.bounds if bound.rigor.may_support)
        assert format_upper(least) == shown


@pytest.mark.parametrize("condition", Condition)
def test_every_condition_is_on_the_page_and_in_the_help(condition: Condition) -> None:
    assert f"`--condition {condition}` |" in PAGE
    (option,) = (get_args(annotation)[1] for name, annotation, _ in options_of(Statements) if name == "condition")
    assert re.search(rf"\b{condition}\b", option.help)


def test_opacus_answers_the_same_whatever_the_sampler() -> None:
    accountant = RDPAccountant()
    accountant.history = [STEPS]
    (shown,) = re.findall(r"Opacus' own accountant answers ([\d.]+) for all", PAGE)
    assert accountant.get_epsilon(1e-5) == pytest.approx(float(shown), abs=1e-5)


def test_the_declared_claim_has_known_keys_and_each_part_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "claim.yaml").write_text(shown)
    (tmp_path / "checkpoint.pt").write_text(json.dumps({"history": [STEPS], "mechanism": "rdp"}))
    claim = read_claim(tmp_path / "claim.yaml")
    assert isinstance(claim, DeclaredClaim)
    labels = [part.label for part in claim.parameters.events]
    assert labels == ["fine-tuning", "warm-up", "label counts", "synthetic texts"]
    with pytest.raises(InputError, match="ledger"):
        claim.plan()
    (tmp_path / "texts" / "private").mkdir(parents=True)
    with Ledger.open(tmp_path / "texts" / "private" / "ledger.sqlite") as ledger:
        event = GaussianDpEvent(5.0)
        ledger.begin("texts", plan=event, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
    for part in claim.read_parts():
        bounds = upper_bounds(part.event, claim.claimed(), adjacency=claim.adjacency)
        assert min(bound.value for bound in bounds if bound.rigor.may_support) < math.inf, part.label


def test_the_distribution_of_the_snippet_bounds_from_above() -> None:
    """Its event is that of the first row of the table; the distribution is on a grid of 1e-3 and so a little worse."""
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 (our own documentation)
    (shown,) = re.findall(r"`poisson` with `--normalizer public` \| add_remove \| ([\d.]+)", PAGE)
    bound = names["bound"]
    assert isinstance(bound, float)
    assert float(shown) - 1e-5 <= bound <= float(shown) + 1e-3
