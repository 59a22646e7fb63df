"""Trees of Gaussian sums over several epochs, with and without restarts (DP-FTRL).

A node is the sum of 2^i consecutive steps of one tree, from a multiple of 2^i, and is released with its own noise once
it is complete. A record that takes part in the steps of a set moves a node by the number of these steps that are in it.

Proof: docs/proofs/matrices.md, Theorems 1, 2 and 6.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting.names import ORDERS
from dpassay.base import validate
from dpassay.base.arrays import Integers

MAX_STEPS = 2**20
"""The most steps of all epochs together."""
"""How the steps of a record in two epochs may be related: not at all, or it has the same place in every epoch."""


def tree_event(
    noise_multiplier: float, steps: int, epochs: int = 1, *, restart_every: int | None = None, order: str = "any"
) -> DpEvent:
    """The event of trees over several epochs, in each of which every record takes part at most once.

    Args:
        noise_multiplier: standard deviation of the noise of a node over the largest norm of a record's contribution to
            a step, at least 0.
        steps: of one epoch, at least 1.
        epochs: at least 1.
        restart_every: a new tree begins after so many steps; None for one tree over all epochs.
        order: ``any``, or ``same`` if a record has the same place in every epoch.

    Returns:
        As many Gaussians as the largest number of nodes that a record moves, each counted by its squared move: exact.
    """
    validate.non_negative(noise_multiplier=noise_multiplier)
    gaussian = dp_event.GaussianDpEvent(noise_multiplier)
    return dp_event.SelfComposedDpEvent(gaussian, squared_move(steps, epochs, restart_every, order))


@functools.lru_cache(maxsize=64)
def squared_move(steps: int, epochs: int, restart_every: int | None = None, order: str = "any") -> int:
    """The squared L2 sensitivity of the nodes, for contributions of norm 1; arguments as of `tree_event`."""
    validate.integer(minimum=1, steps=steps)
    validate.integer(minimum=1, epochs=epochs)
    validate.one_of(ORDERS, order=order)
    total = steps * epochs
    if total > MAX_STEPS:
        raise ValueError(f"trees have at most {MAX_STEPS} steps in all epochs, not {total}")
    length = total if restart_every is None else min(total, validate.integer(minimum=1, restart_every=restart_every))
    return _of_same_order(steps, epochs, length) if order == "same" else _of_any_order(steps, total, length)


def _of_same_order(steps: int, epochs: int, length: int) -> int:
    """The largest over places: for each size of node, runs of epochs whose steps are in one node count squared."""
    places = np.arange(steps)[:, None] + steps * np.arange(epochs)
    tree, within = places // length, places % length
    lengths = np.minimum(length, steps * epochs - tree * length)
    total = np.zeros(steps, dtype=np.int64)
    for level in range(length.bit_length()):
        node = within >> level
        complete = (node + 1) << level <= lengths
        total += _squared_runs(tree * ((length >> level) + 1) + node, complete)
    return int(total.max())


def _squared_runs(names: Integers, counted: np.ndarray) -> Integers:
    """For each row, the sum of the squared lengths of runs of equal names, of those that are counted."""
    columns = np.arange(names.shape[1])
    begins = np.ones(names.shape, dtype=bool)
    begins[:, 1:] = names[:, 1:] != names[:, :-1]
    position = columns - np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
    return np.asarray(np.where(counted, 2 * position + 1, 0).sum(axis=1), dtype=np.int64)  # 1 + 3 + … = squares


def _of_any_order(steps: int, total: int, length: int) -> int:
    """Each epoch chooses a step freely: the choices of an epoch that nodes divide are tried at each division.

    A node that holds a part of an epoch has two values, with that epoch's step and without. They depend on where it
    begins within an epoch, not on the epoch.
    """

    @functools.cache
    def value(level: int, begin: int, left: bool, right: bool) -> int:
        """The largest sum of squares within a node, if its first and its last epoch take part in it or not."""
        end = begin + (1 << level)
        last = (end - 1) // steps
        if not last:
            return (level + 1) * left
        count = last - 1 + left + right
        middle = begin + (1 << (level - 1))
        before, after = (middle - 1) // steps, middle // steps
        offset = middle - after * steps
        if before == after:  # an epoch takes part on one side of the middle
            taking_part = left if not before else right if before == last else True
            sides = [(True, False), (False, True)] if taking_part else [(False, False)]
        else:
            sides = [(left if not before else True, right if after == last else True)]
        return count * count + max(
            value(level - 1, begin, left if before else of_left, of_left)
            + value(level - 1, offset, of_right, right if after < last else of_right)
            for of_left, of_right in sides
        )

    sums = {False: 0}  # by whether the epoch that is under way has taken part
    for begin, level in _roots(total, length):
        place, end = begin % steps, begin + (1 << level)
        inside = begin // steps == (end - 1) // steps
        reached: dict[bool, int] = {}
        for used, sum_ in sums.items():
            for left in (True, False):
                if left and used and place:
                    continue
                for right in (left,) if inside else (True, False):
                    open_ = (right or (inside and used and place > 0)) and end % steps > 0
                    reached[open_] = max(reached.get(open_, 0), sum_ + value(level, place, left, right))
        sums = reached
    return max(sums.values())


def _roots(total: int, length: int) -> Iterator[tuple[int, int]]:
    """First step and level of the largest complete nodes of all trees, in their order."""
    for tree in range(0, total, length):
        begin, left = tree, min(length, total - tree)
        while left:
            level = left.bit_length() - 1
            yield begin, level
            begin, left = begin + (1 << level), left - (1 << level)
