"""Verifies, bit for bit, that a row's logits do not depend on the rows beside it, at the shapes that a run uses.

With forward passes of one public shape (`decoding.FixedRows`), a row's logits are the same bits whatever the other rows
hold and wherever it stands, if the kernels treat all rows alike. Nothing promises that, so it is tested on the device,
with the data type, number of rows, length of contexts and length of the cache that the run will use: a tile of rows is
computed, then computed again with its rows in other places, and with other rows in place of some of them.

The test sees the kernels, which choose their instructions by shapes and not by contents. What a module computes from
contents is judged by its class (`row_modules.check`): a module that couples rows only where some row holds rare tokens
would pass any test on samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cupel.mechanisms.models.decoding import FixedRows, RowShape

MOST_ROWS = 256
"""Rows of one forward pass, at most."""

_MOST_TOKENS = 2**14  # of a forward pass that writes contexts
_MOST_SCORES = 2**24  # pairs of tokens that one head of attention compares in it
_STEPS = 3  # tokens at the beginning of a document, and as many at the last positions

Trace = NDArray[np.int32]
Contexts = list[list[int]]


@dataclass(frozen=True)
class RowPlan:
    """How a run computes its rows; public.

    Attributes:
        shapes: of the forward passes of each label's slots; None where rows are packed as they come.
        exact: whether rows were verified not to depend on each other, bit for bit, at all of these shapes.
    """

    shapes: Mapping[str | None, RowShape] | None
    exact: bool

    def to_json(self) -> dict[str, Any]:
        """What a ledger notes of it, in JSON types."""
        shapes = None
        if self.shapes is not None:
            shapes = [[label, shape.rows, shape.context, shape.positions] for label, shape in self.shapes.items()]
        return {"exact": self.exact, "shapes": shapes}


PACKED = RowPlan(None, exact=False)


def preferred(rows: int, context: int, positions: int, pinned: int) -> RowShape:
    """The shape for about so many rows of contexts of at most so many tokens: a power of two of rows."""
    most = max(1, min(rows, MOST_ROWS, _MOST_TOKENS // context, _MOST_SCORES // context**2))
    return RowShape(1 << (most.bit_length() - 1), context, positions, pinned)


def find(network: Any, vocabulary_size: int, wanted: RowShape) -> tuple[RowShape, bool]:
    """The shape with the most rows, at most those wanted, at which rows are verified not to depend on each other.

    Returns:
        The shape and True; or the wanted one and False, where rows differ at every number of rows. One row by itself
        differs only where the kernels do not repeat themselves.
    """
    shape = wanted
    while True:
        if verify(network, vocabulary_size, shape):
            return shape, True
        if shape.rows == 1:
            return wanted, False
        shape = replace(shape, rows=shape.rows // 2)


@torch.inference_mode()
def verify(network: Any, vocabulary_size: int, shape: RowShape) -> bool:
    """Whether every row's logits are the same bits in all arrangements of `_arrangements`.

    A row is followed through its context, the first tokens of a document, its way back to the context, and the last
    positions of the cache. Rows of a tile have different lengths, the longest and the shortest among them.
    """
    own = _contexts(vocabulary_size, shape, seed=0)
    expected = _trace(network, vocabulary_size, shape, own, range(shape.rows))
    for contexts, origin in _arrangements(vocabulary_size, shape, own):
        found = _trace(network, vocabulary_size, shape, contexts, origin)
        kept = [(place, row) for place, row in enumerate(origin) if row >= 0]
        places, rows = map(list, zip(*kept, strict=True))
        if not np.array_equal(found[:, places], expected[:, rows]):
            return False
    return True


def _arrangements(vocabulary_size: int, shape: RowShape, own: Contexts) -> Iterator[tuple[Contexts, Sequence[int]]]:
    """Tiles to compare with the first: their contexts, and which row of the first each place holds (−1: another row).

    All rows in other places: reversed, shuffled, and moved up by one, as where a row is removed; then half of the rows
    kept, either half, beside random ones, beside the longest contexts, and beside the shortest, which padding is; and
    the longest and the shortest row by themselves, as the last tile of a run may have one.
    """
    count = shape.rows
    shuffled = np.random.default_rng(1).permutation(count).tolist()
    for order in (range(count)[::-1], shuffled, range(1, count)):
        if len(order):
            yield [own[row] for row in order], order
    random, longest = _contexts(vocabulary_size, shape, 2), _tokens(vocabulary_size, [shape.context] * count, 3)
    kinds = (random, longest, [[0]] * count) if count > 1 else ()
    for side, others in itertools.product((0, 1), kinds):
        origin = [place if place % 2 == side else -1 for place in range(count)]
        yield [own[place] if row >= 0 else others[place] for place, row in enumerate(origin)], origin
    yield own[:1], [0]
    yield own[-1:], [count - 1]


def _contexts(vocabulary_size: int, shape: RowShape, seed: int) -> Contexts:
    """Random tokens; lengths from the longest to the shortest, spread evenly."""
    lengths = np.linspace(shape.context, 1, shape.rows).round().astype(int).tolist()
    return _tokens(vocabulary_size, lengths, seed)


def _tokens(vocabulary_size: int, lengths: Sequence[int], seed: int) -> Contexts:
    rng = np.random.default_rng([seed, *lengths])
    return [rng.integers(vocabulary_size, size=length).tolist() for length in lengths]


def _trace(network: Any, vocabulary_size: int, shape: RowShape, contexts: Contexts, origin: Sequence[int]) -> Trace:
    """The bits of each row's logits, shape (steps, rows, V).

    What a row is continued with follows its origin, so that a row in another place is continued alike.
    """
    rows = FixedRows(network, contexts, shape=shape, vocabulary_size=vocabulary_size)
    number = torch.tensor([row if row >= 0 else shape.rows + place for place, row in enumerate(origin)])
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
