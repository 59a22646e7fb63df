"""The claim of the guide to dataset vectors is what the guide says, and its code prints what follows it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import yaml

from dpassay.generators.dataset_vectors.claim import DatasetVectorsParameters, ShotWriting
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "dataset-vectors.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_the_claim_costs_what_the_guide_says(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "claim.yaml").write_text(text)
    claim = read_claim(tmp_path / "claim.yaml")
    (bound,) = account([tmp_path / "claim.yaml"], delta=1e-5, method="gdp").bounds
    said = re.search(r"ε at most (\d\.\d+)", GUIDE)
    assert said is not None
    assert float(said[1]) == pytest.approx(bound.value, abs=1e-5)
    assert bound.value <= yaml.safe_load(text)["guarantee"]["epsilon"]
    assert claim.claimed()


def test_the_table_names_all_parameters() -> None:
    table = GUIDE[GUIDE.index("| parameter |") : GUIDE.index("With labels,")]
    named = set(re.findall(r"`(?:writing\.)?([a-z_]+)`", table))
    assert {*DatasetVectorsParameters.model_fields} - {"writing", "seed"} <= named
    assert {*ShotWriting.model_fields} - {"relative"} <= named


def test_the_code_prints_what_the_guide_says() -> None:
    (code,), (printed,) = blocks("python"), blocks("text")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == printed
