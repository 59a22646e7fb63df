"""Aggregates several next-token predictions into one distribution: medians or means of clipped logits.

Centred rows are clipped about public logits, which are added to the aggregate, and may say to which tokens all else is
restricted (docs/proofs/centred.md).

Clipped logits are integer multiples of 2⁻²⁴ (`ex_post.clipped_rows.GRID`), so medians and sums do not depend on the
order of the records, and a removed record leaves no rounding behind. Operations on all rows run where the logits are:
in numpy on the CPU, in torch on a GPU, with bitwise equal results. The distribution and its costs are computed in numpy
on the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post.clipped_rows import (
    GRID,
    LogitRows,
    StepRows,
    Steps,
    centred_steps,
    clip_logits,
    clip_steps,
    integer_clip,
    likely_tokens,
)
from dpassay.accounting.ex_post.medians import Cost, Medians
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.primitives import token_sampler
from dpassay.mechanisms.primitives.randomness import Source
from dpassay.mechanisms.private_inference.device_rows import CentredDeviceRows, DeviceRows

Logits = NDArray[np.floating] | torch.Tensor
ClippedRows = LogitRows | DeviceRows | StepRows | CentredDeviceRows


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One slot's next-token distribution: softmax(scores/temperature), with scores floored 2·clip below the largest.

    Attributes:
        scores: shape (V,), of the tokens that are kept. For a mean they are sums, and clip and temperature include the
            denominator, so that no division rounds.
        clip: c, times the denominator of a mean; for centred rows c and the tail of the public logits.
        temperature: τ, likewise.
        batch: shape (B, V), the aggregated logits: clipped, on the device of the model, or raw without protection.
        medians: from which the costs of a median are computed.
        public: shape (V,), what of the scores is public; None for nothing.
        kept: shape (V,), the tokens that the columns are of, ascending; None for the whole vocabulary. Others are not
            drawn.
    """

    scores: Floats
    clip: float
    temperature: float
    batch: ClippedRows | Logits
    medians: Medians | None = None
    public: Floats | None = None
    kept: Integers | None = None

    @property
    def clipped(self) -> Floats:
        """The aggregated logits, shape (B, V): clipped, or raw without protection; copied from a GPU on access."""
        if isinstance(self.batch, ClippedRows):
            return np.asarray(self.batch.steps() * GRID, dtype=np.float64)
        return np.asarray(_on_cpu(self.batch), dtype=np.float64)

    def draw(self, source: Source) -> int:
        """Samples a token from this distribution."""
        column = token_sampler.draw(self.scores, clip=self.clip, temperature=self.temperature, source=source)
        return column if self.kept is None else int(self.kept[column])

    def column(self, token: int) -> int | None:
        """The column of a token; None if it is not kept."""
        if self.kept is None:
            return token
        index = int(np.searchsorted(self.kept, token))
        return index if index < len(self.kept) and self.kept[index] == token else None

    def log_probability(self, token: int) -> float:
        """log p(token); −∞ if it is not kept."""
        column = self.column(token)
        if column is None:
            return -math.inf
        return token_sampler.log_probability(self.scores, column, clip=self.clip, temperature=self.temperature)

    def log_probabilities(self, vocabulary: int) -> Floats:
        """log p of all tokens, shape (vocabulary,)."""
        scores = token_sampler.floored(self.scores, self.clip) / self.temperature
        law: Floats = np.full(vocabulary, -np.inf)
        law[slice(None) if self.kept is None else self.kept] = scores - special.logsumexp(scores)
        return law


def clipped_rows(logits: Logits, clip: float) -> LogitRows | DeviceRows:
    """The clipped rows of raw logits, shape (B, V), in place: in numpy on the CPU, in torch on a GPU."""
    if isinstance(logits, torch.Tensor) and logits.device.type != "cpu":
        return DeviceRows(logits, clip)
    return LogitRows(_on_cpu(logits), clip)


def centred_rows(logits: Logits, public: Steps, clip: float, tail: float) -> StepRows | CentredDeviceRows:
    """The centred rows of raw logits, shape (B, V): in numpy on the CPU, in torch on a GPU."""
    if isinstance(logits, torch.Tensor) and logits.device.type != "cpu":
        return CentredDeviceRows(logits, public, clip, tail)
    return StepRows(centred_steps(_on_cpu(logits), public, clip, tail), clip)


def _likely_columns(
    logits: Logits, public: Steps, clip: float, top_k: int | None
) -> tuple[Logits, Steps, Integers | None]:
    """Raw logits and public steps at the tokens that public logits make likely, and these tokens.

    A row without a finite entry there is 0 at all of them, so that whether a run ends does not depend on one record.
    """
    if top_k is None:
        return logits, public, None
    kept = likely_tokens(public, top_k, clip)
    raw = torch.as_tensor(logits)
    columns = raw[:, torch.from_numpy(kept).to(raw.device)]
    finite = columns.amax(dim=1).isfinite()
    return torch.where(finite[:, None], columns, 0.0), public[kept], kept


def _on_cpu(logits: Logits) -> NDArray[np.floating]:
    return logits.cpu().numpy() if isinstance(logits, torch.Tensor) else logits


def median(
    logits: Logits,
    fallback: Logits | None,
    *,
    clip: float,
    temperature: float,
    adjacency: Adjacency,
    tail: float | None = None,
    top_k: int | None = None,
) -> Aggregate:
    """The coordinate-wise median of a slot's raw logits, shape (B, V), clipped to c; an empty slot uses the public
    `fallback`, shape (V,), which is needed for B ≤ 1.

    With a `tail`, rows are centred at the fallback, which is then always needed and clipped with the tail. With
    `top_k`, that of rows that are centred at those of its tokens that are likely."""
    if tail is not None:
        assert fallback is not None
        own, center, kept = _likely_columns(logits, clip_steps(_on_cpu(fallback), tail), clip, top_k)
        centred, added = centred_rows(own, center, clip, tail), np.asarray(center * GRID, dtype=np.float64)
        medians = Medians.of_rows(centred, clip=clip, adjacency=adjacency, public=added)
        return Aggregate(medians.median, medians.clip + tail, temperature, centred, medians, added, kept)
    rows = clipped_rows(logits, clip)
    public = None if fallback is None else clip_logits(_on_cpu(fallback), clip)
    medians = Medians.of_rows(rows, clip=clip, adjacency=adjacency, fallback=public)
    return Aggregate(medians.median, clip, temperature, rows, medians)


def median_cost(aggregate: Aggregate, token: int, *, replaced: bool, rounding: float) -> Cost:
    """The cost of a token that was sampled from a `median`: the exact cost at its adjacency, including the sampler's
    rounding. Where a removal may also *replace* a row (contexts of several records, pieces of a fixed size),
    `replaced`, the costs are the larger of add_remove and replace_one."""
    medians, column = aggregate.medians, aggregate.column(token)
    assert medians is not None
    assert column is not None
    if not replaced:
        return medians.costs(column, aggregate.temperature, rounding=rounding)
    relations = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    both = [medians.costs(column, aggregate.temperature, kind, rounding=rounding) for kind in relations]
    return Cost(max(c.u_minus for c in both), max(c.u_plus for c in both), both[0].gamma)


def mean(
    logits: Logits,
    anchor: Logits | None,
    *,
    clip: float,
    temperature: float,
    denominator: int,
    tail: float | None = None,
    top_k: int | None = None,
) -> Aggregate:
    """The sum of a slot's clipped logits, raw of shape (B, V), over a fixed public denominator s, with a public
    `anchor`, shape (V,), that is always added, if there is one; 0, uniform sampling, for an empty slot.

    With a `tail`, rows are centred at the anchor, which is clipped with the tail and added s times. With `top_k`, that
    of rows that are centred at those of its tokens that are likely."""
    integer_bound = integer_clip(clip) * GRID  # so that the floor of the sampler is on the grid too, and is not rounded
    if tail is not None:
        assert anchor is not None
        own, center, kept = _likely_columns(logits, clip_steps(_on_cpu(anchor), tail), clip, top_k)
        centred, times = centred_rows(own, center, clip, tail), center.astype(np.int64) * denominator
        total, added = (np.asarray(steps * GRID, dtype=np.float64) for steps in (times + centred.sums(), times))
        bound = (integer_bound + integer_clip(tail) * GRID) * denominator
        return Aggregate(total, bound, temperature * denominator, centred, public=added, kept=kept)
    rows = clipped_rows(logits, clip)
    scores: Floats = np.asarray(rows.sums() * GRID, dtype=np.float64)  # exact in float64 up to 2²³ rows
    if anchor is not None:
        scores += clip_logits(_on_cpu(anchor), clip)
    return Aggregate(scores, integer_bound * denominator, temperature * denominator, rows)


def single(logits: Logits, row: Logits, *, temperature: float) -> Aggregate:
    """The softmax of one record's own row, shape (V,), of the raw logits of a slot, without clipping and without
    protection; probabilities below e⁻⁴⁰ of the largest are raised to that."""
    return Aggregate(np.asarray(_on_cpu(row), dtype=np.float64), 20 * temperature, temperature, logits)
