"""The median of a batch of clipped logits, the medians of its neighbours, and the cost of releasing one token.

Definitions and proofs are in `dpassay.accounting.ex_post.costs` and docs/proofs/ex-post.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post.clipped_rows import GRID, MAX_TAIL, Rows, StepRows, Steps, integer_clip
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers

_BLOCK = 2**18  # entries of the batch that are compared at once
_MAX_RANGE = 600.0  # 2c/τ; above it exp(−2c/τ) times a float64 rounding error would underflow

Pair = tuple[int, int]
"""Integers of two middle rows: the vector halfway between them, or the row itself if they are equal."""


class Cost(NamedTuple):
    """The cost of one token: upper bounds on the signed log-ratios, and the γ of Definition 4."""

    u_minus: float
    u_plus: float
    gamma: float

    @property
    def gamma_star(self) -> float:
        """The exact per-token cost max(u⁻, u⁺)."""
        return max(self.u_minus, self.u_plus)


def slack(vocabulary: int, clip: float, temperature: float) -> float:
    """A bound on the float64 error of a difference of two log-probabilities computed here, and of γ.

    Proof: docs/proofs/ex-post.md, Theorem 5.

    Args:
        vocabulary: V.
        clip: c.
        temperature: τ.
    """
    spread = 2 * clip / temperature
    return 2.0**-52 * (3 * vocabulary + 10 * spread + 4 * math.log(vocabulary) + 32)


@dataclass(slots=True, eq=False)
class Medians:
    """The middle of one batch of clipped logits: its median, the medians of its neighbours, and the cost of a token.

    Build it with `Medians.of`. Columns in which the whole middle is −c are counted, not computed.

    Attributes:
        size: the number of rows B.
        clip: c, rounded down to the grid.
        median: shape (V,): the logits that are released (divided by τ), public ones included; the fallback for an
            empty batch.
        adjacency: the neighbouring relation of `left`, `right` and, by default, of `costs`.
    """

    size: int
    clip: float
    median: Floats
    adjacency: Adjacency
    _fallback: Floats
    _public: Floats | None  # shape (V,), added to every median
    _peak: float  # the largest logit of any median, subtracted from exponents so that no sum overflows
    _live: Integers  # the columns where the middle is not all −c
    _ranks: Steps  # the middle there: a, b, d of an odd batch; w, a, b, d of an even one
    _rows: Rows
    _roots: dict[tuple[int, float], Floats] = field(default_factory=dict, init=False, repr=False)
    _places: dict[int, int | None] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        clipped: ArrayLike,
        *,
        clip: float,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        fallback: ArrayLike | None = None,
        public: ArrayLike | None = None,
    ) -> Medians:
        """The medians of a batch.

        Args:
            clipped: shape (B, V), B ≥ 0, the output of `clip_logits` (float32 or float64).
            clip: the c it was clipped with.
            adjacency: add_remove or replace_one.
            fallback: shape (V,), the public clipped logits that an empty batch releases; None is the uniform law.
            public: shape (V,), public logits that are added to every median, for rows from `centred_steps`; an empty
                batch then releases them, and there is no other fallback.

        Raises:
            ValueError: if the shape or the adjacency is invalid, or an entry is outside [−c, c].
        """
        limit = integer_clip(clip)
        batch = np.asarray(clipped)
        if batch.ndim != 2 or batch.shape[1] == 0:
            raise ValueError(f"a batch needs shape (records, vocabulary), not {batch.shape}")
        integers = np.empty(batch.shape, dtype=np.int32)
        for index, row in enumerate(batch):
            steps = row * (1 / GRID)
            np.rint(steps, out=steps)
            if not (steps.max() <= limit and steps.min() >= -limit):
                raise ValueError(f"the batch has entries outside [−{clip}, {clip}]; clip it with clip_logits first")
            integers[index] = steps
        rows = StepRows(integers, clip)
        return cls.of_rows(rows, clip=clip, adjacency=adjacency, fallback=fallback, public=public)

    @classmethod
    def of_rows(
        cls,
        rows: Rows,
        *,
        clip: float,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        fallback: ArrayLike | None = None,
        public: ArrayLike | None = None,
    ) -> Medians:
        """The medians of a batch stored elsewhere and clipped with the same c; its entries are not checked.

        With `public` logits, every column of the batch must be live.
        """
        limit = integer_clip(clip)
        size, vocabulary = rows.shape
        half = size // 2
        live, ranks = rows.middle(range(half - 1, half + 2) if size % 2 else range(half - 2, half + 2))
        added = None if public is None else _public_vector(public, vocabulary)
        if added is not None and (fallback is not None or len(live) < vocabulary):
            raise ValueError("public logits need rows whose columns are all live, and no fallback beside them")
        empty = _fallback_vector(fallback, vocabulary, limit) if added is None else added
        if size:
            median = np.full(vocabulary, -limit * GRID)
            median[live] = ranks[1] * GRID if size % 2 else (ranks[1].astype(np.int64) + ranks[2]) * (GRID / 2)
            if added is not None:
                median += added
        else:
            median = empty
        peak = limit * GRID if added is None else limit * GRID + float(added.max())
        relation = _checked_adjacency(adjacency)
        return cls(size, limit * GRID, median, relation, empty, added, peak, live, ranks, rows)

    @property
    def reach(self) -> float:
        """Half of the largest difference of two logits of a median: c, and half of the range of public logits."""
        return self.clip if self._public is None else self.clip + float(np.ptp(self._public)) / 2

    def slack(self, temperature: float) -> float:
        """A bound on the float64 error of a difference of two log-probabilities of these medians, and of γ."""
        return slack(len(self.median), self.reach, temperature)

    @property
    def left(self) -> Floats:
        """Shape (V,): the smallest median of a neighbour in each coordinate (for replace_one, over all rows)."""
        return self._full_vector(self._interval(self.adjacency)[0])

    @property
    def right(self) -> Floats:
        """Shape (V,): the largest median of a neighbour in each coordinate (for replace_one, over all rows)."""
        return self._full_vector(self._interval(self.adjacency)[1])

    def log_probability(self, token: int, temperature: float) -> float:
        """log softmax(median/τ) of `token`."""
        if self.size == 0:
            return self._log_fallback(token, temperature)
        centre = (1, 1) if self.size % 2 else (1, 2)
        return self._log_law(centre, centre, token, temperature)

    def leave_one_out(self, token: int, temperature: float) -> Floats:
        """log p_D(x) − log p_{D∖i}(x) for every row i, shape (B,).

        A batch of one is compared with the fallback. These are realised values, not upper bounds; each is within [−u⁺,
        u⁻] of `costs` up to `slack`.
        """
        self._check(token, temperature)
        base = self.log_probability(token, temperature)
        if self.size <= 1:
            return np.full(self.size, base - self._log_fallback(token, temperature))
        masks: tuple[tuple[int, bool], ...]
        ladder: tuple[Pair, ...]
        if self.size % 2:
            ladder, masks = ((0, 1), (0, 2), (1, 2)), ((1, False), (1, True))
        else:
            ladder, masks = ((1, 1), (2, 2)), ((1, False),)
        sums, values = self._weights_and_logits_by_row(ladder, masks, temperature, token)
        return base - self._log_probabilities(sums, values, temperature)

    def costs(
        self,
        token: int,
        temperature: float,
        adjacency: Adjacency | str | None = None,
        *,
        rounding: float = 0.0,
    ) -> Cost:
        """The cost of releasing `token`.

        Args:
            token: the sampled x, in [0, V).
            temperature: τ > 0, with 2·`reach`/τ at most 600.
            adjacency: add_remove or replace_one; by default the object's own.
            rounding: a bound on |log p̃(y)/p(y)| between the law that was sampled and the exact softmax; twice this
                bound is added to u⁻ and u⁺.

        Returns:
            (u⁻, u⁺, γ), each an upper bound that includes its float error.

        Raises:
            ValueError: if an argument is invalid.
        """
        self._check(token, temperature)
        relation = self.adjacency if adjacency is None else _checked_adjacency(adjacency)
        error = self.slack(temperature)
        base = self.log_probability(token, temperature)
        if relation is Adjacency.REPLACE_ONE:
            lowest, highest = self._replacement_extremes(token, temperature, base)
        else:
            left, right = self._interval(relation)
            lowest = self._log_law(right, left, token, temperature)
            highest = self._log_law(left, right, token, temperature)
            if self.size == 1:
                fallen = self._log_fallback(token, temperature)
                lowest, highest = min(lowest, fallen), max(highest, fallen)
        extra = error + 2 * rounding
        return Cost(
            max(base - lowest, 0.0) + extra,
            max(highest - base, 0.0) + extra,
            self._gamma(token, temperature, base) + error,
        )

    def _check(self, token: int, temperature: float) -> None:
        if not 0 <= token < len(self.median):
            raise ValueError(f"token must be between 0 and {len(self.median) - 1}, not {token!r}")
        check_temperature(self.reach, temperature)

    def _interval(self, adjacency: Adjacency) -> tuple[Pair, Pair]:
        """L and R of docs/proofs/ex-post.md, Theorem 1; for replace_one the hull over all rows."""
        if self.size % 2:
            return ((0, 0), (2, 2)) if adjacency is Adjacency.REPLACE_ONE else ((0, 1), (1, 2))
        return ((0, 1), (2, 3)) if adjacency is Adjacency.REPLACE_ONE else ((1, 1), (2, 2))

    def _midpoint(self, pair: Pair) -> Floats:
        """Shape (A,): a vector in the live columns."""
        return np.asarray((self._ranks[pair[0]].astype(np.int64) + self._ranks[pair[1]]) * (GRID / 2))

    def _full_vector(self, pair: Pair) -> Floats:
        if self.size == 0 and self.adjacency is Adjacency.REPLACE_ONE:
            return self.median
        vector = np.full(len(self.median), -self.clip)
        vector[self._live] = self._midpoint(pair)
        return vector if self._public is None else vector + self._public

    def _root(self, rank: int, temperature: float) -> Floats:
        """exp((z + f − peak)/2τ) of a middle row with the public logits f, if any: at most 1.

        The weight of a vector halfway between two rows is the product of theirs. Cached, since every cost of a batch
        uses three or four of them.
        """
        key = rank, temperature
        if key not in self._roots:
            logits = self._ranks[rank] * GRID
            if self._public is not None:
                logits = logits + self._public
            self._roots[key] = np.exp((logits - self._peak) / (2 * temperature))
        return self._roots[key]

    def _clipped_weight(self, token: int, temperature: float) -> float:
        """The total weight of the columns that are not live, without the token's."""
        dead = len(self.median) - len(self._live) - (self._place(token) is None)
        return dead * math.exp(-2 * self.clip / temperature)

    def _place(self, token: int) -> int | None:
        """The token's position among the live columns; None if its column is not live. Cached, as `_root`."""
        if token not in self._places:
            index = int(self._live.searchsorted(token))
            self._places[token] = index if index < len(self._live) and self._live[index] == token else None
        return self._places[token]

    def _at(self, pair: Pair, token: int) -> float:
        """The token's entry in a vector."""
        index = self._place(token)
        if index is None:
            return -self.clip
        logit = (int(self._ranks[pair[0], index]) + int(self._ranks[pair[1], index])) * (GRID / 2)
        return logit if self._public is None else logit + float(self._public[token])

    def _log_law(self, others: Pair, own: Pair, token: int, temperature: float) -> float:
        """log softmax(w/τ)_x for w = `others` except w_x = `own`_x."""
        exponent = (self._at(own, token) - self._peak) / temperature
        return exponent - math.log(self._weight_of_others(others, token, temperature) + math.exp(exponent))

    def _weight_of_others(self, pair: Pair, token: int, temperature: float) -> float:
        """The total weight of all tokens but one in a vector."""
        first, second = self._root(pair[0], temperature), self._root(pair[1], temperature)
        index = self._place(token)
        if index is None:
            live = first @ second
        else:
            live = first[:index] @ second[:index] + first[index + 1 :] @ second[index + 1 :]
        return float(live) + self._clipped_weight(token, temperature)

    def _log_probabilities(self, others: Floats, own: Floats, temperature: float) -> Floats:
        """Log-probability of the token with logits `own` if all others weigh `others`; both of one shape."""
        exponent = (own - self._peak) / temperature
        return np.asarray(exponent - np.log(others + np.exp(exponent)))

    def _log_fallback(self, token: int, temperature: float) -> float:
        """log softmax(w/τ)_x for w = the fallback."""
        exponents = (self._fallback - self._peak) / temperature
        return float(exponents[token]) - math.log(float(np.exp(exponents).sum()))

    def _gamma(self, token: int, temperature: float, base: float) -> float:
        """γ = max{log 1/α, log β} of Definition 4, with [a, d] of an odd batch and [a, b] of an even one."""
        left, right = ((0, 0), (2, 2)) if self.size % 2 else ((1, 1), (2, 2))
        low, centre, high = (
            (value - self._peak) / temperature
            for value in (self._at(left, token), float(self.median[token]), self._at(right, token))
        )
        log_total = centre - base
        log_left = low - self._log_law(left, left, token, temperature)
        log_right = high - self._log_law(right, right, token, temperature)
        return max(high - centre + log_total - log_left, centre - low + log_right - log_total, 0.0)

    def _replacement_extremes(self, token: int, temperature: float, base: float) -> tuple[float, float]:
        """The smallest and largest log-probability of `token` if one row is exchanged for any vector.

        Proof: docs/proofs/ex-post.md, Theorem 3, with the middle rows named as there.
        """
        if self.size == 0:
            return base, base
        if self.size % 2:
            lower = self._weights_and_logits_by_row(((0, 0), (1, 1)), ((1, True),), temperature, token)
            upper = self._weights_and_logits_by_row(((1, 1), (2, 2)), ((1, False),), temperature, token)
        else:
            lower = self._weights_and_logits_by_row(
                ((0, 1), (0, 2), (1, 2)), ((1, False), (1, True)), temperature, token
            )
            upper = self._weights_and_logits_by_row(
                ((1, 2), (1, 3), (2, 3)), ((2, False), (1, False)), temperature, token
            )
        lowest = self._log_probabilities(upper[0], lower[1], temperature)
        highest = self._log_probabilities(lower[0], upper[1], temperature)
        return float(lowest.min()), float(highest.max())

    def _weights_and_logits_by_row(
        self, levels: Sequence[Pair], masks: Sequence[tuple[int, bool]], temperature: float, token: int
    ) -> tuple[Floats, Floats]:
        """For every row i, the total weight of all tokens but `token`, and the logit of `token`, both of shape (B,).

        Row i's vector is levels[0] if no mask holds, levels[1] if the first holds, and levels[2] if the second holds
        too. A mask holds if an entry is at most (below, if strict) a middle row's. Levels ascend, so every increment
        is ≥ 0 and nothing cancels. Columns that are not live are equal in all levels.
        """
        position = self._place(token)
        weights = [self._root(first, temperature) * self._root(second, temperature) for first, second in levels]
        logits = [self._at(level, token) for level in levels]
        if position is not None:
            for weight in weights:
                weight[position] = 0.0
        sums = np.full(self.size, weights[0].sum() + self._clipped_weight(token, temperature))
        values = np.full(self.size, logits[0])
        increments = [weights[index + 1] - weights[index] for index in range(len(masks))]
        most = [self._ranks[rank] - strict for rank, strict in masks]
        width = max(1, _BLOCK // self.size)
        for start in range(0, len(self._live), width):
            part = slice(start, start + width)
            steps = self._rows.live_steps(part)
            for index in range(len(masks)):
                mask = (steps <= most[index][part]).astype(np.float64)
                sums += mask @ increments[index][part]
                if position is not None and start <= position < start + width:
                    values += mask[:, position - start] * (logits[index + 1] - logits[index])
        return sums, values


def check_temperature(clip: float, temperature: float) -> None:
    """Checks that τ is positive and 2c/τ is at most 600."""
    validate.positive(temperature=temperature)
    if 2 * clip / temperature > _MAX_RANGE:
        raise ValueError(
            f"2·clip/temperature must be at most {_MAX_RANGE:g}, not {2 * clip / temperature:g}; raise the temperature"
        )


def _checked_adjacency(adjacency: Adjacency | str) -> Adjacency:
    if adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        raise ValueError(f"ex-post costs are defined under add_remove and replace_one, not {str(adjacency)!r}")
    return Adjacency(adjacency)


def _public_vector(public: ArrayLike, vocabulary: int) -> Floats:
    vector = np.asarray(public, dtype=np.float64)
    steps = np.rint(vector / GRID)
    if vector.shape != (vocabulary,) or not (np.abs(vector) <= MAX_TAIL).all() or not (steps * GRID == vector).all():
        raise ValueError(
            f"public logits must have shape ({vocabulary},) and be multiples of 2⁻²⁴ of at most {MAX_TAIL:g}, as from "
            f"clip_logits, not shape {vector.shape}"
        )
    return vector


def _fallback_vector(fallback: ArrayLike | None, vocabulary: int, limit: int) -> Floats:
    if fallback is None:
        return _flat_vector(vocabulary, limit)
    vector = np.rint(np.asarray(fallback, dtype=np.float64) / GRID)
    if vector.shape != (vocabulary,) or not (np.abs(vector) <= limit).all():
        raise ValueError(
            f"fallback must have shape ({vocabulary},) and entries within the clip, not shape {vector.shape}"
        )
    return np.asarray(vector * GRID)


@functools.lru_cache(maxsize=16)
def _flat_vector(vocabulary: int, limit: int) -> Floats:
    """The logits of the uniform law, which cannot be written to."""
    return np.broadcast_to(np.float64(limit * GRID), vocabulary)
