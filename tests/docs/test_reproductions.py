"""The pages of reproductions show what their committed results say."""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

REPRODUCTIONS = Path(__file__).resolve().parents[2] / "docs" / "reproductions"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reproduction_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return load(REPRODUCTIONS / "private_inference" / "tables.py")


@pytest.mark.parametrize("name", ["private-inference", "secret-evolution", "dataset-vectors", "two-stage"])
def test_every_table_of_the_page_is_that_of_the_results(tables: ModuleType, name: str) -> None:
    page = (REPRODUCTIONS / f"{name}.md").read_text(encoding="utf-8")
    assert page.count("<!-- table ") == page.count("<!-- end -->") > 0
    assert tables.filled(page, tables.read_tables(REPRODUCTIONS / name.replace("-", "_") / "results")) == page


def test_a_number_in_the_page_that_no_result_has_is_found(tables: ModuleType) -> None:
    page = "<!-- table t -->\n| a |\n| --- |\n| 1.5 |\n<!-- end -->\n"
    table = {"columns": [{"title": "a", "key": "a", "digits": 1}], "rows": [{"a": 1.5}]}
    assert tables.filled(page, {"t": table}) == page
    assert tables.filled(page.replace("1.5", "1.6"), {"t": table}) == page
    with pytest.raises(ValueError, match="'t'"):
        tables.filled(page, {})


def test_a_page_may_show_a_part_of_a_table(tables: ModuleType) -> None:
    columns = [{"title": "a", "key": "a"}, {"title": "b, ε", "key": "b", "digits": 1}]
    whole = {"t": {"columns": columns, "rows": [{"a": "x, y", "b": 1.0}, {"a": "z", "b": 2.0}, {"a": "z", "b": 3.0}]}}

    def shown(clauses: str) -> str:
        begin = f"<!-- table t{clauses} -->\n"
        page: str = tables.filled(f"{begin}<!-- end -->\n", whole)
        return page.removeprefix(begin).removesuffix("<!-- end -->\n")

    assert shown("; columns: b | a; a: x, y") == "| b, ε | a |\n| --- | --- |\n| 1.0 | x, y |\n"
    assert shown("; b: 1.0 | 3.0") == "| a | b, ε |\n| --- | --- |\n| x, y | 1.0 |\n| z | 3.0 |\n"
    with pytest.raises(ValueError, match="no column 'c'"):
        shown("; columns: a | c")
    with pytest.raises(ValueError, match=r"no row has '1\.0'; rows have 2\.0, 3\.0"):
        shown("; a: z; b: 1.0")


def test_a_list_is_shown_as_mean_and_deviation_of_the_sample(tables: ModuleType) -> None:
    assert tables.cell([1.0, 2.0, 3.0], 2) == "2.00 ± 1.00"  # √((1 + 0 + 1)/2)
    assert tables.cell([4, 4], 2) == "4"
    assert tables.cell([1.0, None], 2) == "–"
    assert tables.cell({"value": -0.25, "interval": [-1, 0.5]}, 2) == "−0.25 (−1.00 to 0.50)"
    assert tables.cell(None, 2) == "–"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script that needs no language model; it imports others by their bare names, which are forgotten after."""
    folder = str(REPRODUCTIONS / "private_inference")
    monkeypatch.syspath_prepend(folder)
    known = set(sys.modules)
    yield importlib.import_module("table_2_figure_2")
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]


@pytest.mark.slow
def test_a_script_runs_and_its_table_can_be_shown(
    script: ModuleType,
    tables: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second call finds the results of the first and runs nothing."""
    monkeypatch.setattr(sys, "argv", ["script", "--quick", "--seeds", "1", "--results", str(tmp_path)])
    for runs_now in (True, False):
        assert script.main() == 0
        assert ("seed 0" in capsys.readouterr().err) is runs_now
    result = json.loads((tmp_path / "table_2_figure_2.json").read_text(encoding="utf-8"))
    page = tables.filled("<!-- table table_2 -->\n<!-- end -->\n", tables.read_tables(tmp_path))
    assert page.count("\n| ") == 2 + len(result["runs"])  # the header's two lines, then one line a way of clustering
    for run in result["runs"]:
        assert sum(run["sizes"]) == result["parameters"]["records"]
        assert f"| {run['setting']} |" in page
    assert "<svg" in (tmp_path / "figure_2.svg").read_text(encoding="utf-8")


@pytest.fixture
def noise_ratio(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A script that imports from both reproductions; all of it is forgotten after."""
    monkeypatch.setattr(sys, "path", [str(REPRODUCTIONS / "secret_evolution"), *sys.path])
    known = set(sys.modules)
    yield importlib.import_module("noise_ratio")
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(REPRODUCTIONS)):
            del sys.modules[name]


def test_noise_of_gdp_is_that_of_the_same_p_and_r(
    noise_ratio: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """√T over Φ⁻¹(r) − Φ⁻¹(p) for a record, times the largest number of occurrences for a group."""
    monkeypatch.setattr(sys, "argv", ["script", "--quick", "--seeds", "1", "--results", str(tmp_path)])
    assert noise_ratio.main() == 0
    result = json.loads((tmp_path / "noise_ratio.json").read_text(encoding="utf-8"))
    normal = statistics.NormalDist()
    mu = normal.inv_cdf(1e-3) - normal.inv_cdf(1e-4)
    for run, rounds in zip(result["runs"], result["parameters"]["rounds"], strict=True):
        assert run["record"] == pytest.approx(rounds**0.5 / mu, rel=1e-9)
        assert run["group"] == pytest.approx(run["most"] * rounds**0.5 / mu, rel=1e-9)
        # The noise of weights is that of μ-GDP for the secret, and less than of records drawn with these chances.
        assert run["share_weighed"] < run["share"]
    assert result["runs"][0]["r_published"] > 1e-3  # one Gaussian in place of the mixture does not keep to r
