"""Trees of Gaussian sums, beside dp_accounting and by enumeration of nodes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant

from dpassay.accounting import account, events
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Stated, read_as
from tests.helpers.adversaries import complete_nodes

Tree = dp_event.SingleEpochTreeAggregationDpEvent


def test_the_height_of_a_tree_is_that_of_its_complete_nodes() -> None:
    for steps in range(1, 300):
        nodes = complete_nodes(steps)
        held = max(sum(first <= step < first + length for first, length in nodes) for step in range(steps))
        assert events.tree_height(Tree(1.0, steps)) == held
    assert events.tree_height(Tree(1.0, [0])) == 0
    assert events.tree_height(Tree(1.0, [3, 8, 5])) == 4
    assert events.tree_height(Tree(1.0, 2**40)) == 41


@pytest.mark.parametrize(("noise_multiplier", "published"), [(1.13, 19.74), (8.83, 2.04)])
def test_published_numbers(noise_multiplier: float, published: float) -> None:
    """The StackOverflow setting of Kairouz and others (2021), which tests of dp_accounting hold its answer below."""
    tree = Tree(noise_multiplier, 1600)
    library = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL).compose(tree)
    ours = account(tree, adjacency="zero_out", delta=1e-6).value
    assert ours < library.get_epsilon(1e-6) < published
    assert ours == pytest.approx(account(tree, adjacency="zero_out", delta=1e-6, method="gdp").value, rel=1e-9)


@pytest.mark.parametrize("counts", [128, [400] * 4, [10, 400, 400, 400, 390], [1], 5])
@pytest.mark.parametrize("times", [1, 3])
def test_divergences_are_those_of_dp_accounting(counts: int | list[int], times: int) -> None:
    tree = dp_event.SelfComposedDpEvent(Tree(6.0, counts), times)
    orders = (1.5, 2.0, 8.0, 64.0)
    library = RdpAccountant(orders, NeighboringRelation.REPLACE_SPECIAL).compose(tree)
    ours = RenyiAccountant("zero_out", orders=orders).compose(tree)
    assert ours.cost.divergence == pytest.approx(library.rdp, rel=1e-12)
    doubled = RenyiAccountant("replace_one", orders=orders).compose(tree)
    assert doubled.cost.divergence == pytest.approx(4 * library.rdp, rel=1e-12)


def test_a_bound_says_what_it_assumes() -> None:
    bound = account(Tree(6.0, 128), adjacency="add_remove", delta=1e-5)
    assert bound.value == pytest.approx(1.8664, abs=5e-5)
    assert any("at most one step" in sentence for sentence in bound.assumptions)


@pytest.mark.parametrize("counts", [[], -1, [3, -1], 2.5, "8", [True], [[3]]])
def test_step_counts_that_are_none(counts: object) -> None:
    with pytest.raises(ValueError, match="step_counts must be"):
        account(Tree(1.0, counts), adjacency="zero_out", delta=1e-5)


@pytest.mark.parametrize("text", ["SingleEpochTreeAggregationDpEvent(noise_multiplier=6.0, step_counts=[128, 100])"])
def test_a_file_holds_a_tree(tmp_path: Path, text: str) -> None:
    (tmp_path / "event.txt").write_text(text)
    event = read_as(read_state(tmp_path / "event.txt"), Stated()).event
    assert event == Tree(6.0, [128, 100])
    assert math.isclose(account(event, adjacency="zero_out", delta=1e-5).value, 1.86636932, rel_tol=1e-8)
