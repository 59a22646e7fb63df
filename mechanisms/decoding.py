"""The decode loop's model side: many contexts at once, each row at its own position, one forward a token.

Every row holds a context, written to the key-value cache once; the beginning that all contexts share (an instruction, a
template) is computed for one row and copied. Tokens are appended row by row, and a row can be taken
back to its context while others go on. Position p of a row is entry p of its cache, so positions, sliding windows and
masks are those of the row alone; what lies behind a row's position, from another document or as padding, is masked.
Model files are those of `transformers`; only the cache is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_GROWTH = 32
_TOKENS_PER_FORWARD = 8192
_LEAST_SHARED = 4  # tokens; a shorter common beginning is computed row by row


class _Window:
    """The rows and positions that one forward writes: all layers of a session share one."""

    def __init__(self, total_rows: int) -> None:
        self.total_rows = total_rows
        self.length = 0  # entries 0, …, length − 1 are visible to this forward
        self.view: slice | torch.Tensor | None = None  # the rows whose cache a forward reads; None if only its own keys
        self._rows = torch.empty(0, dtype=torch.long)
        self._positions = torch.empty(0, 0, dtype=torch.long)
        self.entries: torch.Tensor | None = None
        self.heads_and_capacity = (0, 0)

    def move(self, rows: torch.Tensor, view: slice | torch.Tensor | None, positions: torch.Tensor, length: int) -> None:
        """Sets the rows, shape (rows,), and the positions, shape (rows, n), of the next forward."""
        self._rows, self._positions, self.view, self.length = rows, positions, view, length
        self.entries = None

    def locate(self, heads: int, capacity: int) -> None:
        """Where the new keys, shape (rows, heads, n, width), go in a store seen as (rows·heads·capacity, width)."""
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
        return -(-self.window.length // _GROWTH) * _GROWTH

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
        """Gives the first entries of row 0 to every row."""
        for store in (self.keys, self.values):
            store[1:, :, :length] = store[:1, :, :length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window.length, 0

    def get_seq_length(self) -> int:
        return self.window.length

    def get_max_length(self) -> int:
        return -1


def layer_kinds(config: Any) -> tuple[set[str], bool]:
    """The kinds of attention of a model's layers, and whether the model takes one mask for each kind.

    Raises:
        ValueError: for a model with layers whose state is no list of keys and values (recurrent, linear attention).
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
    """How many first tokens all contexts share."""
    shared = 0
    for column in zip(*contexts, strict=False):
        if any(token != column[0] for token in column):
            break
        shared += 1
    return shared


class DecodeSession:
    """Rows of contexts that are continued token by token.

    Build it with `LanguageModel.session`. `logits` answers for each row's current position; `append` moves every row
    one token on; `reset` takes rows back to their contexts.
    """

    def __init__(
        self, network: Any, contexts: Sequence[Sequence[int]], *, vocabulary_size: int, rows_per_forward: int
    ) -> None:
        if not contexts or not all(contexts):
            raise ValueError("a decode session needs at least one row, and at least one token in every context")
        self._network = network
        self._vocabulary_size = vocabulary_size
        self._rows_per_forward = rows_per_forward
        self._device = network.device
        self._kinds, self._mask_by_kind = layer_kinds(network.config)
        self._window = _Window(len(contexts))
        self._cache = Cache(layers=[_RowLayer(self._window) for _ in range(network.config.num_hidden_layers)])
        lengths = torch.tensor([len(context) for context in contexts], dtype=torch.long)
        self._start = lengths - 1
        self._start_token = torch.tensor([context[-1] for context in contexts], dtype=torch.long)
        self._position = self._start.clone()
        self._token = self._start_token.clone()
        self._prefill(contexts, lengths)

    @property
    def rows(self) -> int:
        return len(self._position)

    def logits(self) -> torch.Tensor:
        """Logits of the next token of every row, shape (rows, V), float32, on the model's device."""
        return self._continue(self._token[:, None])[:, 0]

    def append(self, tokens: Sequence[int] | torch.Tensor) -> None:
        """Moves every row on by one token, shape (rows,)."""
        self._position += 1
        self._token = torch.as_tensor(tokens, dtype=torch.long).clone()

    def reset(self, rows: torch.Tensor) -> None:
        """Takes the rows of a mask, shape (rows,), back to the end of their contexts."""
        self._position = torch.where(rows, self._start, self._position)
        self._token = torch.where(rows, self._start_token, self._token)

    def forced(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of every position of given continuations, in one forward.

        Args:
            tokens: shape (rows, n), what follows the current position in each row.

        Returns:
            Shape (rows, n, V), float32: entry t is what `logits` answers before tokens[:, t] is appended. The session
            stands behind the last token afterwards.
        """
        out = self._continue(torch.cat([self._token[:, None], tokens[:, :-1]], dim=1))
        self._position += tokens.shape[1]
        self._token = tokens[:, -1].clone()
        return out

    @torch.inference_mode()
    def _prefill(self, contexts: Sequence[Sequence[int]], lengths: torch.Tensor) -> None:
        """Writes all tokens of the contexts but the last, rows of similar length together.

        A causal model's keys and values at a position are a function of the tokens up to it. So those of the beginning
        that all rows share are computed once, and copied; each row then computes its own tokens, which see them.
        """
        shared = min(common_beginning(contexts), int(lengths.min()) - 1) if len(contexts) > 1 else 0
        if shared < _LEAST_SHARED:
            shared = 0
        else:
            self._prefill_rows([contexts[0][: shared + 1]], torch.zeros(1, dtype=torch.long), 0)
            for layer in self._cache.layers:
                layer.copy_first(shared)
        order = torch.argsort(lengths, stable=True)
        start = 0
        while start < len(order):
            stop = min(start + self._rows_per_forward, len(order))
            while stop > start + 1 and (stop - start) * (int(lengths[order[stop - 1]]) - shared) > _TOKENS_PER_FORWARD:
                stop = start + (stop - start + 1) // 2
            self._prefill_rows([contexts[row] for row in order[start:stop]], order[start:stop], shared)
            start = stop

    def _prefill_rows(self, contexts: Sequence[Sequence[int]], rows: torch.Tensor, first: int) -> None:
        """Writes the tokens of some rows' contexts from position `first` on; what is before it is in the cache."""
        width = max(len(context) for context in contexts) - 1 - first
        if width == 0:
            return
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        for index, context in enumerate(contexts):
            body = list(context[first:-1])
            tokens[index, : len(body)] = torch.tensor(body, dtype=torch.long)
        # Padding follows a row's own tokens, where the causal mask hides it and later tokens overwrite it.
        positions = torch.arange(first, first + width).expand(len(rows), -1)
        self._forward(rows, rows.to(self._device) if first else None, tokens, positions)

    def _continue(self, tokens: torch.Tensor) -> torch.Tensor:
        """Forward of tokens of shape (rows, n) from each row's position, in pieces of rows."""
        count = tokens.shape[1]
        positions = self._position[:, None] + torch.arange(count)
        if self.rows <= self._rows_per_forward:
            logits = self._forward(torch.arange(self.rows), slice(None), tokens, positions, keep=count)
            return logits[..., : self._vocabulary_size].float()
        out = torch.empty(self.rows, count, self._vocabulary_size, dtype=torch.float32, device=self._device)
        every = torch.arange(self.rows)
        for start in range(0, self.rows, self._rows_per_forward):
            view = slice(start, start + self._rows_per_forward)
            logits = self._forward(every[view], view, tokens[view], positions[view], keep=count)
            out[view] = logits[..., : self._vocabulary_size]
        return out

    @torch.inference_mode()
    def _forward(
        self,
        rows: torch.Tensor,
        view: slice | torch.Tensor | None,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        keep: int = 1,
    ) -> torch.Tensor:
        """One call of the model; the logits of its last `keep` positions, shape (rows, keep, V)."""
        length = int(positions.max()) + 1
        positions = positions.to(self._device)
        self._window.move(rows.to(self._device), view, positions, length)
        output = self._network(
            input_ids=tokens.to(self._device),
            position_ids=positions,
            attention_mask=self._masks(positions, length),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: torch.Tensor = output.logits
        return logits

    def _masks(self, positions: torch.Tensor, length: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """Additive masks, shape (rows, 1, n, length), for each kind of attention: the own past, or a window of it."""
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
