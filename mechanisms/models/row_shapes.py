"""Verifies, bit for bit, that a row's logits do not depend on the other rows of its batch, at the shapes of a run.

In forward passes of one public shape (`decoding.FixedRows`), a row's logits are bitwise equal whatever the other rows
contain and whatever its index, if the kernels treat all rows alike. That is not guaranteed, so it is tested on the
device, with the data type, number of rows, length of contexts and length of the cache of the run: a tile of rows is
computed, and computed again with its rows permuted, and with some rows replaced by others.

The test covers the kernels, which choose their instructions by shapes and not by contents. Modules whose computation
depends on contents are checked by their class (`row_modules.check`): a module that couples rows only if some row has
rare tokens would pass any test on samples.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpassay.mechanisms.models.decoding import FixedRows, RowShape

MAX_ROWS = 256
"""The largest number of rows in one forward pass."""

_MAX_TOKENS = 2**14  # in a forward pass that writes contexts
_MAX_SCORES = 2**24  # pairs of tokens per attention head in such a pass
_STEPS = 3  # tokens at the beginning of a document, and at the last positions

Trace = NDArray[np.int32]
Contexts = list[list[int]]


@dataclass(frozen=True)
class RowPlan:
    """The public shapes in which a run computes the rows of each label's slots, None if rows are packed; `exact` if
    rows were verified, bit for bit, not to depend on each other at all of them."""

    shapes: Mapping[str | None, RowShape] | None
    exact: bool

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON types, for the ledger."""
        shapes = None
        if self.shapes is not None:
            shapes = [[label, shape.rows, shape.context, shape.positions] for label, shape in self.shapes.items()]
        return {"exact": self.exact, "shapes": shapes}


PACKED = RowPlan(None, exact=False)


def preferred(rows: int, context: int, positions: int, pinned: int) -> RowShape:
    """The preferred shape for this number of rows and length of contexts; its number of rows is a power of two."""
    most = max(1, min(rows, MAX_ROWS, _MAX_TOKENS // context, _MAX_SCORES // context**2))
    return RowShape(1 << (most.bit_length() - 1), context, positions, pinned)


def find(network: Any, vocabulary_size: int, wanted: RowShape) -> tuple[RowShape, bool]:
    """The shape with the most rows, at most those wanted, at which rows are verified not to depend on each other.

    Returns:
        The shape and True; or the wanted shape and False, if the check fails for every number of rows. A single row
        fails only if the kernels are not deterministic.
    """
    shape, exact = most_rows(wanted, lambda shape: verify(network, vocabulary_size, shape))
    return shape if exact else wanted, exact


def most_rows(wanted: RowShape, holds: Callable[[RowShape], bool]) -> tuple[RowShape, bool]:
    """The shape with the most rows, at most those wanted and halved again and again, for which a check holds, and True;
    or that of a single row and False."""
    shape = wanted
    while not (exact := holds(shape)) and shape.rows > 1:
        shape = replace(shape, rows=shape.rows // 2)
    return shape, exact


@torch.inference_mode()
def verify(network: Any, vocabulary_size: int, shape: RowShape) -> bool:
    """Whether every row's logits are bitwise equal in all arrangements of `arrangements_of`.

    A row is computed along its context, the first tokens of a document, after a reset to its context, and at the last
    positions of the cache. The rows of a tile have different lengths, from the shortest to the longest.
    """

    def trace(contexts: Contexts, origin: Sequence[int]) -> Trace:
        return _trace(network, vocabulary_size, shape, contexts, origin)

    return holds_in_all_arrangements(vocabulary_size, shape, trace)


@torch.inference_mode()
def bits(network: Any, vocabulary_size: int, shape: RowShape) -> str:
    """SHA-256 of the logits of public rows at a shape, which is equal on two machines only if they compute the same
    bits of them. The rows, their lengths and their positions are those of `verify`."""
    own = contexts_of(vocabulary_size, shape, seed=0)
    return hashlib.sha256(_trace(network, vocabulary_size, shape, own, range(shape.rows)).tobytes()).hexdigest()


def holds_in_all_arrangements(
    vocabulary_size: int, shape: RowShape, trace: Callable[[Contexts, Sequence[int]], Trace]
) -> bool:
    """Whether what is computed of a row is bitwise equal in all arrangements of a tile: `trace` gives, for the contexts
    of a tile and the row of the first tile at each index (−1: another row), the bits of each row, shape (steps, rows,
    …)."""
    own = contexts_of(vocabulary_size, shape, seed=0)
    expected = trace(own, range(shape.rows))
    for contexts, origin in arrangements_of(vocabulary_size, shape, own):
        result = trace(contexts, origin)
        kept = [(index, row) for index, row in enumerate(origin) if row >= 0]
        indices, rows = map(list, zip(*kept, strict=True))
        if not np.array_equal(result[:, indices], expected[:, rows]):
            return False
    return True


def arrangements_of(vocabulary_size: int, shape: RowShape, own: Contexts) -> Iterator[tuple[Contexts, Sequence[int]]]:
    """Tiles to compare with the first: their contexts, and the row of the first tile at each index (−1: another row).

    First permutations of all rows: reversed, shuffled, and shifted by one, as if a row was removed. Then half of the
    rows, either half, together with random ones, with the longest contexts, and with the shortest, like padding. Then
    the longest and the shortest row alone, since the last tile of a run may have a single row.
    """
    count = shape.rows
    shuffled = np.random.default_rng(1).permutation(count).tolist()
    for order in (range(count)[::-1], shuffled, range(1, count)):
        if len(order):
            yield [own[row] for row in order], order
    random, longest = contexts_of(vocabulary_size, shape, 2), _tokens(vocabulary_size, [shape.context] * count, 3)
    kinds = (random, longest, [[0]] * count) if count > 1 else ()
    for side, others in itertools.product((0, 1), kinds):
        origin = [index if index % 2 == side else -1 for index in range(count)]
        yield [own[index] if row >= 0 else others[index] for index, row in enumerate(origin)], origin
    yield own[:1], [0]
    yield own[-1:], [count - 1]


def contexts_of(vocabulary_size: int, shape: RowShape, seed: int) -> Contexts:
    """Random tokens; lengths evenly spaced from the longest to the shortest."""
    lengths = np.linspace(shape.context, 1, shape.rows).round().astype(int).tolist()
    return _tokens(vocabulary_size, lengths, seed)


def _tokens(vocabulary_size: int, lengths: Sequence[int], seed: int) -> Contexts:
    rng = np.random.default_rng([seed, *lengths])
    return [rng.integers(vocabulary_size, size=length).tolist() for length in lengths]


def _trace(network: Any, vocabulary_size: int, shape: RowShape, contexts: Contexts, origin: Sequence[int]) -> Trace:
    """The bits of each row's logits, shape (steps, rows, V).

    The continuation of a row depends on its origin, so that a permuted row has the same continuation.
    """
    rows = FixedRows(network, contexts, shape=shape, vocabulary_size=vocabulary_size)
    number = torch.tensor([row if row >= 0 else shape.rows + index for index, row in enumerate(origin)])
    room = shape.positions - shape.context
    seen = []
    for step in range(min(_STEPS, room)):
        seen.append(rows.logits())
        rows.append((7 * number + 11 * step + 1) % vocabulary_size)
    rows.reset(number % 2 == 0)
    seen.append(rows.logits())
    rows.reset(torch.ones(len(contexts), dtype=torch.bool))
    rows.skip(max(0, room - _STEPS))
    for step in range(min(_STEPS, room)):
        rows.append((5 * number + 13 * step + 2) % vocabulary_size)
        seen.append(rows.logits())
    return torch.stack(seen).cpu().numpy().view(np.int32)
