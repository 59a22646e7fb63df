"""The claim of the guide to table evolution is the shipped one, costs what the guide says, and has all parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dpassay.generators.table_evolution.claim import TableEvolutionParameters
from dpassay.jobs.account import account
from dpassay.mechanisms.table_evolution.candidates import FIRST_CELLS
from dpassay.mechanisms.table_evolution.evolution import FULL_SIGNAL, round_shares

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "table-evolution.md").read_text(encoding="utf-8")
SHIPPED = ROOT / "examples" / "claims" / "table-evolution.yaml"


def test_the_claim_is_the_shipped_one_and_costs_what_the_guide_says() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert yaml.safe_load(block) == yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    (bound,) = account([SHIPPED], delta=1e-6, method="lattice").bounds
    said = re.search(r"ε at most (\d\.\d+)", GUIDE)
    assert said is not None
    assert float(said[1]) == pytest.approx(bound.value, abs=1e-5)


def test_the_table_names_all_parameters_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) ?\|$", GUIDE, re.MULTILINE))
    fields = TableEvolutionParameters.model_fields
    assert set(rows) == set(fields)
    for name, said in rows.items():
        assert said == ("" if name == "noise_multiplier" else str(fields[name].default))
    assert f"up to {FIRST_CELLS} at first" in GUIDE
    of_pairs = sum(round_shares(3, FULL_SIGNAL)[-2:])
    assert f"from {FULL_SIGNAL:g} on {of_pairs:.0%} go\nto pairs".replace("%", " %") in GUIDE
