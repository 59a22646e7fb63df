"""The claim of the guide to tables is the shipped one and costs what the guide says; its table names all parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dpassay.data.table_schema import read_schema
from dpassay.generators.two_stage.claim import RowSampling, TwoStageParameters
from dpassay.jobs.account import account

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "two-stage.md").read_text(encoding="utf-8")
SHIPPED = ROOT / "examples" / "claims" / "table-two-stage.yaml"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_claim_is_the_shipped_one_and_costs_what_the_guide_says() -> None:
    assert yaml.safe_load(blocks("yaml")[0]) == yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    (bound,) = account([SHIPPED], delta=1e-5, method="lattice").bounds
    said = re.search(r"ε at most (\d\.\d+)", GUIDE)
    assert said is not None
    assert float(said[1]) == pytest.approx(bound.value, abs=1e-5)


def test_the_schema_is_one(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(blocks("yaml")[1], encoding="utf-8")
    schema, made_from = read_schema(tmp_path / "schema.yaml")
    assert schema.names == ("age", "weight", "smoker", "admitted")
    assert made_from == "public"


def test_the_table_names_all_parameters() -> None:
    table = GUIDE[GUIDE.index("| parameter |") : GUIDE.index("Which learning rate,")]
    named = set(re.findall(r"`(?:generation)?\.?([a-z_]+)`", table))
    assert {*TwoStageParameters.model_fields} - {"generation", "seed"} <= named
    assert {*RowSampling.model_fields} <= named
