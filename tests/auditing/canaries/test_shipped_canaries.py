"""Canaries of tables that ship with other packages are written as these are, and found where they are copied."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import command
import pytest
from shipped_tables import shipped_tables

from dpassay.auditing.canaries.files import read_plan

TABLES = shipped_tables()
STATED = {
    "statsmodels/anes96/src/anes96.csv": ["--separator", "space"],
    "sklearn/iris.csv": ["--header"],
    "sklearn/digits.csv.gz": ["--no-header"],
    "sklearn/linnerud_exercise.csv": ["--separator", "space"],
}
"""How some are written, which is not found out."""
QUICK = ("sklearn/iris.csv", "sklearn/linnerud_exercise.csv", "vega_datasets/seattle-weather.csv")


def content_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in TABLES]
)
def test_a_generator_that_returns_its_input_is_found_out(name: str, tmp_path: Path) -> None:
    """Its input is the bytes of the data and those of the canaries, without their first line.

    None of 20 is planted with probability 2⁻²⁰."""
    path, folder, stated = TABLES[name], tmp_path / "audit", STATED.get(name, [])
    plan = ("audit", "plan", "--kind", "table", "--canaries", 20, "--like", path, "-o", folder, "-q", *stated)
    result = command.run(*plan)
    if result.returncode:
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert not folder.exists()
        return
    [canaries] = folder.glob("canaries.*")
    data, planted = content_of(path), content_of(canaries)
    if "--no-header" not in stated:
        first, _, planted = planted.partition(b"\n")
        assert data.startswith(first)
    synthetic = tmp_path / "synthetic.csv"
    synthetic.write_bytes(data + (b"" if data.endswith(b"\n") else b"\n") + planted)
    scored = command.run("audit", "score", folder, synthetic, "--json", *stated)
    assert scored.returncode == 0, scored.stderr
    assert not any(column["warnings"] for column in json.loads(scored.stdout)["understood"]["columns"])
    [entry] = json.loads((folder / "scores.json").read_text())["scorings"]
    coins = read_plan(folder).plan.coins
    found = {score for score, coin in zip(entry["candidates"], coins, strict=True) if coin}
    assert found == {0}
