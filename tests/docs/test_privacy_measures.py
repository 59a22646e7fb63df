"""What the privacy tables of the reproduction page are made of, against counts by hand and laws written out."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproductions" / "private_inference"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules, which import one another by their bare names; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    known = set(sys.modules)
    yield {name: importlib.import_module(name) for name in ("batch_costs", "counterexamples")}
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__file__", None) and str(FOLDER) in str(sys.modules[name].__file__):
            del sys.modules[name]


def document(slot: int, length: int, complete: bool = True) -> SimpleNamespace:
    return SimpleNamespace(slot=slot, tokens=(0,) * length, complete=complete)


def test_tokens_are_counted_in_the_quarter_of_their_own_document(scripts: dict[str, ModuleType]) -> None:
    """Quarters of 5 tokens are 2, 1, 1, 1. Unfinished documents and those of 3 tokens are left out."""
    documents = [document(0, 5), document(0, 3), document(0, 4), document(1, 4), document(1, 8, complete=False)]
    costs = np.arange(2 * 12 * 3, dtype=float).reshape(2, 12, 3)
    costs[..., 2] = 1e9  # the published cost, which must not enter
    generation = SimpleNamespace(documents=documents, token_costs=costs)
    sums, counts = scripts["batch_costs"].quarters(SimpleNamespace(generation=generation))
    first, second = costs[0, :, 1], costs[1, :, 1]  # u⁺, the larger one
    assert counts.tolist() == [[3, 2, 2, 2], [1, 1, 1, 1]]
    assert sums[0].tolist() == [first[[0, 1, 8]].sum(), first[[2, 9]].sum(), first[[3, 10]].sum(), first[[4, 11]].sum()]
    assert sums[1].tolist() == second[:4].tolist()


def test_the_cost_of_documents_outside_the_grammar(scripts: dict[str, ModuleType]) -> None:
    inside = "We took the tram to Rome on Monday. A ticket costs 9 dollars in the winter."
    documents = [document(0, 2), document(0, 3), document(1, 1), document(1, 4, complete=False)]
    for item, text in zip(documents, (inside, "We took the tram to to.", inside, inside), strict=True):
        item.text = text
    costs = np.zeros((2, 5, 3))
    costs[0, :, 0], costs[1, :, 1] = [1, 2, 3, 4, 5], [7, 1, 1, 1, 1]
    result = scripts["batch_costs"].outside_grammar(SimpleNamespace(documents=documents, token_costs=costs))
    assert result == {"outside": 1 / 3, "cost_outside": 12 / 22, "costliest": 12 / 15}


def test_a_bootstrap_of_means_has_the_width_of_the_standard_error(scripts: dict[str, ModuleType]) -> None:
    """Of 400 values 0 and 1 it is ±1.96·.025; 2000 resamples move its ends by less than a tenth of its width."""
    values = np.tile([0.0, 1.0], 200)
    result = scripts["batch_costs"].bootstrap(lambda rows: float(values[rows].mean()), len(values))
    assert result["value"] == 0.5
    assert result["interval"] == pytest.approx([0.5 - 1.96 * 0.025, 0.5 + 1.96 * 0.025], abs=0.01)


@pytest.mark.parametrize(("odds", "tokens", "delta"), [(0.5, 1, 0.01), (0.3, 3, 1e-3), (1.0, 4, 0.2)])
def test_coins_lose_what_all_their_outcomes_lose(
    scripts: dict[str, ModuleType], odds: float, tokens: int, delta: float
) -> None:
    epsilon = scripts["counterexamples"].coins_epsilon(odds, tokens, delta)
    heads = 1 / (1 + math.exp(-odds))
    result = 0.0
    for outcome in itertools.product((heads, 1 - heads), repeat=tokens):
        result += max(0.0, math.prod(outcome) - math.exp(epsilon) * math.prod(1 - side for side in outcome))
    assert result == pytest.approx(delta, rel=1e-9)  # the root is found to 1e-12


def test_what_is_lost_in_truth(scripts: dict[str, ModuleType]) -> None:
    """Values computed independently, to the digits they were given with."""
    table = scripts["counterexamples"].counterexamples()["rows"]
    assert [row["true"] for row in table[:2]] == pytest.approx([13.856235, 1.984326], abs=1e-6)
    assert [row["true"] for row in table[2:]] == pytest.approx([21.834, 5.900], abs=1e-3)
    assert [row["reported"] for row in table[:2]] == [0.0, 0.0]
    assert [row["reported"] for row in table[2:]] == pytest.approx([9.89, 2.90], abs=5e-3)  # printed 9.9 and 2.9
    assert table[0]["true"] == pytest.approx(20 * math.log(2 / (1 + math.exp(-8))))  # sure of a token, then a tie
