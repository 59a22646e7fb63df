"""Tables and figures of guides are those of the results files of benchmarks."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def guides() -> Iterator[ModuleType]:
    """The script, which imports others by their bare names; these are forgotten after."""
    known, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("fill_guides")
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith((str(ROOT / "benchmarks"), str(ROOT / "docs"))):
            del sys.modules[name]


def test_guides_show_the_results(guides: ModuleType) -> None:
    for page, name in guides.GUIDES.items():
        text, made = (guides.DOCS / page).read_text(encoding="utf-8"), guides.tables_of(name)
        shown = {line.split()[2] for line in text.splitlines() if line.startswith("<!-- table ")}
        assert shown, page
        assert shown <= set(made), page
        assert guides.tables.filled(text, made) == text, page


def test_figures_show_the_results(guides: ModuleType) -> None:
    for figure, name in guides.FIGURES.items():
        assert (guides.DOCS / figure).read_text(encoding="utf-8") == guides.drawn(name), figure
