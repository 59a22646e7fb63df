"""Decoding of many contexts at once, each row at its own position, with one forward pass per token.

Every row holds a context, which is written to the key-value cache once. Tokens are appended to all rows, and a row can
be reset to its context while others continue. Position p of a row is entry p of its cache, so positions, sliding
windows and masks are those of the row alone; entries after a row's position, from another document or padding, are
masked. The model code is that of `transformers`; only the cache is our own.

`PackedRows` computes all rows at once, at lengths that depend on the rows. That is fast, but a row's rounding then
depends on the other rows. `FixedRows` computes every row in a forward pass of one public shape (`RowShape`), whatever
the rows contain. Only then can a row's logits stay bitwise equal when other rows change, as private inference requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from dpassay.mechanisms.models import row_modules

_GROWTH = 32
TOKENS_PER_FORWARD = 8192
_MIN_SHARED = 4  # tokens; a shorter common prefix is computed for each row


@dataclass(frozen=True, slots=True)
class RowShape:
    """The public shape of every forward pass of a run, independent of the contents and the number of rows.

    Attributes:
        rows: of one forward pass; more rows take several passes, the last of which is filled with padding rows.
        context: the largest number of tokens of a context, to which all are padded.
        positions: the number of positions of the cache: a context followed by the longest document.
        pinned: the largest `positions` of any shape of the run, for which position frequencies are fixed.
    """

    rows: int
    context: int
    positions: int
    pinned: int


class _Window:
    """The rows and positions that one forward pass writes; shared by all layers of a session."""

    def __init__(self, total_rows: int, capacity: int | None) -> None:
        self.total_rows = total_rows
        self.capacity = capacity  # of the cache; None lets it grow with the longest row
        self.length = 0  # entries 0, …, length − 1 are visible to this forward pass
        self.view: slice | torch.Tensor | None = None  # the rows whose cache is read; None for the new keys only
        self._rows = torch.empty(0, dtype=torch.long)
        self._positions = torch.empty(0, 0, dtype=torch.long)
        self.entries: torch.Tensor | None = None
        self.heads_and_capacity = (0, 0)

    def move(self, rows: torch.Tensor, view: slice | torch.Tensor | None, positions: torch.Tensor, length: int) -> None:
        """Sets the rows, shape (rows,), and the positions, shape (rows, n), of the next forward pass."""
        self._rows, self._positions, self.view, self.length = rows, positions, view, length
        self.entries = None

    def locate(self, heads: int, capacity: int) -> None:
        """Computes where the new keys, (rows, heads, n, width), go in a store seen as (rows·heads·capacity, width)."""
        head = torch.arange(heads, device=self._rows.device)
        strips = (self._rows[:, None] * heads + head)[:, :, None] * capacity
        self.entries = (strips + self._positions[:, None, :]).reshape(-1)
        self.heads_and_capacity = (heads, capacity)


class _RowLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, shape (rows, heads, positions, width), written at each row's own positions."""

    is_sliding = False

    def __init__(self, window: _Window) -> None:
        super().__init__()
        self.window = window

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = self._zeros(key_states), self._zeros(value_states)
        self.is_initialized = True

    def _zeros(self, like: torch.Tensor) -> torch.Tensor:
        """Zeros, not garbage: a masked entry weighs 0, and 0 times NaN would still be NaN."""
        shape = (self.window.total_rows, like.shape[1], self._capacity(), like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _capacity(self) -> int:
        return self.window.capacity or -(-self.window.length // _GROWTH) * _GROWTH

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        window = self.window
        if self.keys.shape[2] < window.length:
            extra = (0, 0, 0, self._capacity() - self.keys.shape[2])
            self.keys = torch.nn.functional.pad(self.keys, extra)
            self.values = torch.nn.functional.pad(self.values, extra)
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def _write(self, store: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        window = self.window
        if window.entries is None or window.heads_and_capacity != (store.shape[1], store.shape[2]):
            window.locate(store.shape[1], store.shape[2])
        assert window.entries is not None
        # One copy of contiguous numbers for each row, head and position.
        store.view(-1, store.shape[3]).index_copy_(0, window.entries, new.reshape(-1, store.shape[3]))
        return new if window.view is None else store[window.view, :, : window.length]

    def copy_first(self, length: int) -> None:
        """Copies the first entries of row 0 to every row."""
        for store in (self.keys, self.values):
            store[1:, :, :length] = store[:1, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window.length, 0

    def get_seq_length(self) -> int:
        return self.window.length

    def get_max_length(self) -> int:
        return -1


def layer_kinds(config: Any) -> tuple[set[str], bool]:
    """The types of attention of a model's layers, and whether the model takes one mask for each type.

    Raises:
        ValueError: if a layer has state other than keys and values (recurrent, linear attention).
    """
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        window = getattr(config, "sliding_window", None)
        return {"sliding_attention" if window is not None else "full_attention"}, False
    unknown = set(kinds) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"model has layers of kind {', '.join(sorted(unknown))}; only causal attention is supported")
    return set(kinds), True


def common_beginning(contexts: Sequence[Sequence[int]]) -> int:
    """The number of leading tokens that all contexts share."""
    shared = 0
    for column in zip(*contexts, strict=False):
        if any(token != column[0] for token in column):
            break
        shared += 1
    return shared


class DecodeSession:
    """Rows of contexts that are continued token by token.

    `logits` returns the logits at each row's current position; `append` adds a token to every row; `reset` resets rows
    to their contexts. Subclasses: `PackedRows` and `_Tile`.
    """

    def __init__(
        self, network: Any, contexts: Sequence[Sequence[int]], *, vocabulary_size: int, capacity: int | None = None
    ) -> None:
        if not contexts or not all(contexts):
            raise ValueError("contexts must have at least one row, and each at least one token")
        self._network = network
        self._vocabulary_size = vocabulary_size
        self._device = network.device
        self._kinds, self._mask_by_kind = layer_kinds(network.config)
        self._window = _Window(len(contexts), capacity)
        self._cache = Cache(layers=[_RowLayer(self._window) for _ in range(network.config.num_hidden_layers)])
        lengths = torch.tensor([len(context) for context in contexts], dtype=torch.long)
        self._start = lengths - 1
        self._start_token = torch.tensor([context[-1] for context in contexts], dtype=torch.long)
        self._position = self._start.clone()
        self._token = self._start_token.clone()
        self._prefill(contexts)

    @property
    def rows(self) -> int:
        return len(self._position)

    def logits(self) -> torch.Tensor:
        """Logits of the next token of every row, shape (rows, V), on the model's device."""
        raise NotImplementedError

    def append(self, tokens: Sequence[int] | torch.Tensor) -> None:
        """Appends one token to every row, shape (rows,)."""
        self._position += 1
        self._token = torch.as_tensor(tokens, dtype=torch.long).clone()

    def reset(self, rows: torch.Tensor) -> None:
        """Resets the rows of a mask, shape (rows,), to the end of their contexts."""
        self._position = torch.where(rows, self._start, self._position)
        self._token = torch.where(rows, self._start_token, self._token)

    def _prefill(self, contexts: Sequence[Sequence[int]]) -> None:
        """Writes all tokens of the contexts except the last into the cache."""
        raise NotImplementedError

    def _prefill_rows(self, contexts: Sequence[Sequence[int]], rows: torch.Tensor, first: int, width: int) -> None:
        """Writes `width` tokens of some rows' contexts from position `first`; earlier ones are in the cache."""
        if width == 0:
            return
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        for index, context in enumerate(contexts):
            body = list(context[first:-1])
            tokens[index, : len(body)] = torch.tensor(body, dtype=torch.long)
        # Padding follows a row's tokens: the causal mask hides it, and later tokens overwrite it.
        positions = torch.arange(first, first + width).expand(len(rows), -1)
        view = rows.to(self._device) if first else None
        self.forward(rows, view, tokens, positions, first + width)

    @torch.inference_mode()
    def forward(
        self,
        rows: torch.Tensor,
        view: slice | torch.Tensor | None,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        length: int,
    ) -> torch.Tensor:
        """One call of the model, which sees `length` entries of the cache; logits of the last position, (rows, V)."""
        positions = positions.to(self._device)
        self._window.move(rows.to(self._device), view, positions, length)
        output = self._network(
            input_ids=tokens.to(self._device),
            position_ids=positions,
            attention_mask=self._masks(positions, length),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1, : self._vocabulary_size]
        return logits

    def _masks(self, positions: torch.Tensor, length: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """Additive masks, shape (rows, 1, n, length), for each attention type: the row's past, or a window of it."""
        entry = torch.arange(length, device=positions.device)
        distance = positions[:, None, :, None] - entry
        hidden = {"full_attention": distance < 0}
        if "sliding_attention" in self._kinds:
            hidden["sliding_attention"] = (distance < 0) | (distance >= self._network.config.sliding_window)
        dtype = self._network.dtype
        masks = {
            kind: torch.zeros(mask.shape, dtype=dtype, device=positions.device).masked_fill_(
                mask, torch.finfo(dtype).min
            )
            for kind, mask in hidden.items()
            if kind in self._kinds
        }
        return masks if self._mask_by_kind else next(iter(masks.values()))


class PackedRows(DecodeSession):
    """Rows in as few forward passes as `rows_per_forward` allows, at the length of the longest row.

    The keys and values of a causal model at a position are a function of the tokens up to it. So those of the prefix
    that all rows share (an instruction, a template) are computed once and copied, and rows of similar length are
    computed together. The shapes, and hence the rounding of each row's logits, depend on the rows.
    """

    def __init__(
        self, network: Any, contexts: Sequence[Sequence[int]], *, vocabulary_size: int, rows_per_forward: int
    ) -> None:
        self._rows_per_forward = rows_per_forward
        super().__init__(network, contexts, vocabulary_size=vocabulary_size)

    def logits(self) -> torch.Tensor:
        if self.rows <= self._rows_per_forward:
            return self._step(slice(None)).float()
        out = torch.empty(self.rows, self._vocabulary_size, dtype=torch.float32, device=self._device)
        for start in range(0, self.rows, self._rows_per_forward):
            view = slice(start, start + self._rows_per_forward)
            out[view] = self._step(view)
        return out

    def _step(self, view: slice) -> torch.Tensor:
        positions = self._position[view, None]
        rows = torch.arange(self.rows)[view]
        return self.forward(rows, view, self._token[view, None], positions, int(positions.max()) + 1)

    @torch.inference_mode()
    def _prefill(self, contexts: Sequence[Sequence[int]]) -> None:
        lengths = self._start + 1
        shared = min(common_beginning(contexts), int(lengths.min()) - 1) if len(contexts) > 1 else 0
        if shared < _MIN_SHARED:
            shared = 0
        else:
            self._prefill_rows([contexts[0][: shared + 1]], torch.zeros(1, dtype=torch.long), 0, shared)
            for layer in self._cache.layers:
                layer.copy_first(shared)
        order = torch.argsort(lengths, stable=True)
        start = 0
        while start < len(order):
            stop = min(start + self._rows_per_forward, len(order))
            while stop > start + 1 and (stop - start) * (int(lengths[order[stop - 1]]) - shared) > TOKENS_PER_FORWARD:
                stop = start + (stop - start + 1) // 2
            width = int(lengths[order[stop - 1]]) - 1 - shared
            self._prefill_rows([contexts[row] for row in order[start:stop]], order[start:stop], shared, width)
            start = stop


class _Tile(DecodeSession):
    """The rows of one forward pass of a fixed shape, with their own cache."""

    def __init__(self, network: Any, contexts: Sequence[Sequence[int]], shape: RowShape, vocabulary_size: int) -> None:
        self._shape = shape
        super().__init__(network, contexts, vocabulary_size=vocabulary_size, capacity=shape.positions)

    def logits(self) -> torch.Tensor:
        rows, positions = torch.arange(self.rows), self._position[:, None]
        return self.forward(rows, slice(None), self._token[:, None], positions, self._shape.positions)

    @torch.inference_mode()
    def _prefill(self, contexts: Sequence[Sequence[int]]) -> None:
        self._prefill_rows(contexts, torch.arange(len(contexts)), 0, self._shape.context - 1)

    def skip(self, count: int) -> None:
        """Moves every row forward by positions that are not written."""
        self._position += count

    def forward(self, *arguments: Any) -> torch.Tensor:
        row_modules.pin(self._network, self._shape.pinned)
        return super().forward(*arguments)


_PADDING = (0,)
"""The context of a padding row: one token, which no other row sees."""


class FixedRows:
    """Rows that are computed in forward passes of one public shape, whatever their contents and number.

    A row's index depends on the rows before it; `row_shapes` verifies that all indices are equivalent. Every tile has
    its own cache, so the memory layout is the same for all.

    Args:
        network: a model whose modules `row_modules.check` accepts.
        contexts: token ids, 1 to `shape.context` in each.
        shape: of each forward pass.
        vocabulary_size: V.

    Raises:
        ValueError: if a context is empty, or longer than the shape.
    """

    def __init__(
        self, network: Any, contexts: Sequence[Sequence[int]], *, shape: RowShape, vocabulary_size: int
    ) -> None:
        longest = max(map(len, contexts), default=0)
        if longest > shape.context:
            raise ValueError(f"a context may have at most {shape.context} tokens, not {longest}; truncate it first")
        self._shape, self._vocabulary_size, self._device = shape, vocabulary_size, network.device
        self.rows = len(contexts)
        filled = [*contexts, *[_PADDING] * (-self.rows % shape.rows)] if contexts else []
        self._tiles = [
            _Tile(network, filled[start : start + shape.rows], shape, vocabulary_size)
            for start in range(0, max(1, len(filled)), shape.rows)
        ]
        self._padding = torch.arange(len(filled)) >= self.rows

    def logits(self) -> torch.Tensor:
        """Logits of the next token of every row, shape (rows, V), float32, on the model's device."""
        out = torch.empty(len(self._padding), self._vocabulary_size, dtype=torch.float32, device=self._device)
        for tile, part in self._parts(out):
            part.copy_(tile.logits())
        return out[: self.rows]

    def append(self, tokens: Sequence[int] | torch.Tensor) -> None:
        """Appends one token to every row, shape (rows,)."""
        given = torch.zeros(len(self._padding), dtype=torch.long)
        given[: self.rows] = torch.as_tensor(tokens, dtype=torch.long)
        for tile, part in self._parts(given):
            tile.append(part)
        if len(self._padding) > self.rows:
            self._tiles[-1].reset(self._padding[-self._shape.rows :])

    def reset(self, rows: torch.Tensor) -> None:
        """Resets the rows of a mask, shape (rows,), to the end of their contexts."""
        given = self._padding.clone()
        given[: self.rows] |= rows
        for tile, part in self._parts(given):
            tile.reset(part)

    def _parts(self, of_rows: torch.Tensor) -> Iterator[tuple[_Tile, torch.Tensor]]:
        """Each tile with its part of a tensor that has one entry per row, padding included."""
        for number, tile in enumerate(self._tiles):
            yield tile, of_rows[number * self._shape.rows : (number + 1) * self._shape.rows]

    def skip(self, count: int) -> None:
        """Moves every row forward by positions that are not written, to test the results at later positions."""
        for tile in self._tiles:
            tile.skip(count)
        self._tiles[-1].reset(self._padding[-self._shape.rows :])
