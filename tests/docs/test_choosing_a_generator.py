"""The pages of generators show what their results say, name every generator, and their script runs."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpassay.generators.registry import CLAIMS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    (DOCS / name).read_text(encoding="utf-8")
    for name in ("choosing-a-generator.md", "measurements/generators-compared.md")
]
FOLDERS = [str(DOCS / "choosing"), str(DOCS / "reproductions"), str(DOCS.parent / "benchmarks")]


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    """The module of the page's tables. It imports others by their bare names, which are forgotten after."""
    known, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, FOLDERS[0])
    yield importlib.import_module("page")
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(tuple(FOLDERS)):
            del sys.modules[name]


def results(folder: Path, name: str, of: dict[str, list[dict[str, Any]]]) -> Any:
    """A results file, from setting → numbers of each seed."""
    runs = [
        {"setting": setting, "seed": seed, "machine": {"cores": 2}, **one}
        for setting, found in of.items()
        for seed, one in enumerate(found)
    ]
    (folder / f"{name}.json").write_text(json.dumps({"parameters": {}, "tables": {}, "runs": runs}), encoding="utf-8")


def test_every_table_is_that_of_the_results(page: ModuleType) -> None:
    made = page.page_tables()
    shown = [line.split()[2] for text in PAGES for line in text.splitlines() if line.startswith("<!-- table ")]
    assert sorted(made) == sorted(shown)
    for text in PAGES:
        assert sys.modules["tables"].filled(text, made) == text


def test_every_generator_is_measured_or_named_as_left_out(page: ModuleType) -> None:
    arms = sys.modules["arms"]
    compared = {arm.mechanism for arm in (*arms.TEXT_ARMS, *arms.TABLE_ARMS)}
    assert compared.isdisjoint(arms.LEFT_OUT)
    assert compared | set(arms.LEFT_OUT) == set(CLAIMS)
    for mechanism in CLAIMS:
        assert f"| `{mechanism}` |" in PAGES[0]


FOUND: dict[str, list[dict[str, Any]]] = {
    "topics, model without records": [{"frechet": value} for value in (0.60, 0.61, 0.62)],
    "topics, real texts, unused": [{"frechet": value} for value in (0.20, 0.21, 0.22)],
    "topics, Aug-PE, ε = 1": [{"frechet": value} for value in (0.40, 0.41, 0.42)],
    "topics, dataset vectors, ε = 1": [{"frechet": value} for value in (0.41, 0.42, 0.43)],
    "topics, private inference, mean, ε = 1": [{"frechet": value} for value in (0.50, 0.51, 0.52)],
}


def decided(page: ModuleType, folder: Path, **changes: list[float]) -> dict[str, str]:
    """The first row of the decision table, with other numbers of some arms."""
    names = {name.replace(" ", "_"): name for name in ("Aug-PE", "dataset vectors", "model without records")}
    found = dict(FOUND)
    for key, values in changes.items():
        name = names[key.replace("Aug_PE", "Aug-PE")]
        setting = next(setting for setting in found if name in setting)
        found[setting] = [{"frechet": value} for value in values]
    results(folder, "topics", found)
    row: dict[str, str] = page.page_tables(folder)["decision"]["rows"][0]
    return row


def test_who_wins_follows_from_differences_seed_by_seed(page: ModuleType, tmp_path: Path) -> None:
    """Differences of (x − .01, x, x + .01) have an interval of x ± 4.303·.01/√3 = x ± .025."""
    row = decided(page, tmp_path, dataset_vectors=[0.41, 0.42, 0.45])
    assert row["take"] == "**Aug-PE**, or dataset vectors: none is clearly better"
    assert "Aug-PE 0.41 (0.39 to 0.43)" in row["because"]
    assert "private inference, mean" not in row["because"]
    row = decided(page, tmp_path)
    assert row["take"] == "**Aug-PE**"  # by .01 in every seed, though the intervals of the means overlap
    row = decided(page, tmp_path, dataset_vectors=[0.30, 0.31, 0.32])
    assert row["take"] == "**dataset vectors**"
    row = decided(page, tmp_path, model_without_records=[0.42, 0.43, 0.42])
    assert row["take"].startswith("none of them")
    assert "model without records 0.42" in row["because"]
    row = decided(page, tmp_path, dataset_vectors=[0.30])
    assert row["take"] == "**Aug-PE**"
    assert row["because"].endswith("without numbers of 2 seeds: dataset vectors")


def test_what_is_not_measured_says_so(page: ModuleType, tmp_path: Path) -> None:
    made = page.page_tables(tmp_path)
    assert {row["take"] for row in made["decision"]["rows"]} == {page.NOT_YET}
    assert {row["epsilon"] for row in made["randhie_1"]["rows"]} == {page.NOT_YET}
    results(tmp_path, "randhie", {"randhie, two-stage fine-tuning, ε = 1": [{"refused": "too many columns"}]})
    row = next(row for row in page.page_tables(tmp_path)["randhie_1"]["rows"] if "two-stage" in row["arm"])
    assert row["epsilon"] == "refused: too many columns"


def test_rows_of_the_second_table_are_within_its_public_schema(page: ModuleType) -> None:
    """The schema was written from the description of the variables; a row outside of it would be an error."""
    inputs = sys.modules["inputs"]
    size = {"records": 203, "rows": 50}
    table = inputs.table_rows("star98", size, 0)
    parts = [table.records, table.unused, table.reference]
    assert [len(part) for part in parts] == [203, 50, 50]
    assert len(table.schema.names) >= 15
    product = table.schema.index("minority years"), table.schema.index("minority"), table.schema.index("years")
    for row in table.records:  # an interaction term is the product of its factors, each rounded by at most a half
        whole, first, second = (float(row[place]) for place in product)
        assert abs(whole - first * second) <= 0.5 * (first + second) + 0.75
    for name in ("randhie", "star98"):
        assert len(inputs.guessed_rows(name, 5, 0)) == 5


def test_private_records_unused_and_reference_are_disjoint(page: ModuleType) -> None:
    inputs = sys.modules["inputs"]
    scale = {"records": 40, "documents": 10, "reference": 20}
    notes = inputs.texts("notes", scale, 0)
    assert [len(part) for part in (notes.records, notes.unused, notes.reference)] == [40, 20, 20]
    assert notes.records + notes.unused + notes.reference == inputs.corpora.notes(80, 0)
    marked = inputs.with_codes(notes.records, 0)
    assert sum("(ref " in text for text, _ in marked) == 4


@pytest.mark.slow
def test_the_script_runs_a_generator_and_goes_on(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second call finds the results of the first and runs nothing."""
    study = sys.modules["study"]
    command = ["study.py", "--quick", "--seeds", "1", "--only", "notes, Aug-PE", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    for runs_now in (True, False):
        assert study.main() == 0
        assert ("0 of 1 runs done" in capsys.readouterr().err) is runs_now
    (run,) = json.loads((tmp_path / "notes.json").read_text(encoding="utf-8"))["runs"]
    epsilon = study.QUICK_TEXTS["epsilons"][0]
    assert run["setting"] == f"notes, Aug-PE, ε = {epsilon:g}"
    assert 0.99 * epsilon < run["epsilon"] <= epsilon
    assert run["cpu_seconds"] > 0
    assert run["memory"] > 100  # torch alone takes more
    assert run["documents"] == study.QUICK_TEXTS["documents"]
