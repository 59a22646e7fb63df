"""Trees of Gaussian sums, beside dp_accounting and by enumeration of nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from adversaries import complete_nodes
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant

from dpassay.accounting import account, events
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Stated, read_as
from dpassay.accounting.matrices import Separated, sensitivity, tree_event
from dpassay.accounting.matrices.trees import squared_move

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


# --- several epochs


def tree_matrix(total: int, restart_every: int) -> np.ndarray:
    """A row of ones for each complete node of each tree."""
    rows = []
    for tree in range(0, total, restart_every):
        for first, length in complete_nodes(min(restart_every, total - tree)):
            rows.append([tree + first <= step < tree + first + length for step in range(total)])
    return np.array(rows, dtype=float)


def test_every_way_to_take_part_once_an_epoch() -> None:
    """By enumeration of the steps that a record has in each epoch, for all small trees and restarts."""
    for steps, epochs in itertools.product(range(1, 5), range(1, 5)):
        total = steps * epochs
        for restart_every in (None, *range(1, total + 1)):
            matrix = tree_matrix(total, restart_every or total)

            def squared(chosen: Sequence[int], matrix: np.ndarray = matrix) -> int:
                return int((matrix[:, list(chosen)].sum(axis=1) ** 2).sum())

            free = itertools.product(*(range(epoch * steps, (epoch + 1) * steps) for epoch in range(epochs)))
            assert squared_move(steps, epochs, restart_every) == max(map(squared, free))
            same = [squared(range(place, total, steps)) for place in range(steps)]
            assert squared_move(steps, epochs, restart_every, "same") == max(same)


def test_a_new_tree_each_epoch_is_a_composition_of_epochs() -> None:
    composed = dp_event.SelfComposedDpEvent(Tree(6.0, 128), 3)
    event = tree_event(6.0, 128, 3, restart_every=128)
    ours, theirs = (account(item, adjacency="zero_out", delta=1e-5, method="gdp").value for item in (event, composed))
    assert ours == theirs == pytest.approx(3.46682, abs=1e-5)
    assert squared_move(128, 3, 128) == 24
    assert squared_move(128, 3) == squared_move(128, 3, order="same") == 28
    assert squared_move(128, 1, 32) == 6


def test_more_epochs_and_freer_places_never_cost_less() -> None:
    for steps, epochs in itertools.product((1, 3, 8, 20, 33), (1, 2, 5)):
        for restart_every in (None, 1, 7, steps, 64):
            move = squared_move(steps, epochs, restart_every)
            assert squared_move(steps, epochs, restart_every, "same") <= move
            assert move <= squared_move(steps, epochs + 1, restart_every)
            if restart_every is not None:
                assert move <= squared_move(steps, epochs)
            rows = sensitivity(tree_matrix(steps * epochs, restart_every or steps * epochs), Separated(epochs))
            assert move <= rows.value**2 * (1 + 1e-12)  # any steps, not one in each epoch


def test_trees_that_are_none() -> None:
    for arguments, message in [
        ((0, 1), "steps must be at least 1"),
        ((1, 0), "epochs must be at least 1"),
        ((2**20, 2), "at most 1048576 steps"),
        ((8, 1, 0), "restart_every must be at least 1"),
        ((8, 1, None, "other"), "order must be one of any, same"),
    ]:
        with pytest.raises(ValueError, match=message):
            squared_move(*arguments)
