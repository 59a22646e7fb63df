"""The pages of reproductions show what their committed results say."""

from __future__ import annotations

import importlib.util
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


def test_every_table_of_the_page_is_that_of_the_results(tables: ModuleType) -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- table ") == page.count("<!-- end -->")
    assert tables.filled(page, tables.read_tables()) == page


def test_a_number_in_the_page_that_no_result_has_is_found(tables: ModuleType) -> None:
    page = "<!-- table t -->\n| a |\n| --- |\n| 1.5 |\n<!-- end -->\n"
    table = {"columns": [{"title": "a", "key": "a", "digits": 1}], "rows": [{"a": 1.5}]}
    assert tables.filled(page, {"t": table}) == page
    assert tables.filled(page.replace("1.5", "1.6"), {"t": table}) == page
    with pytest.raises(ValueError, match="'t'"):
        tables.filled(page, {})


def test_a_list_is_shown_as_mean_and_deviation_of_the_sample(tables: ModuleType) -> None:
    assert tables.cell([1.0, 2.0, 3.0], 2) == "2.00 ± 1.00"  # √((1 + 0 + 1)/2)
    assert tables.cell([4, 4], 2) == "4"
    assert tables.cell([1.0, None], 2) == "–"
    assert tables.cell({"value": -0.25, "interval": [-1, 0.5]}, 2) == "−0.25 (−1.00 to 0.50)"
    assert tables.cell(None, 2) == "–"
