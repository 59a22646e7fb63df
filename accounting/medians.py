"""The medians of one batch of clipped logits, those of its neighbours, and what releasing one token costs.

`cupel.accounting.ex_post` says what these costs mean and why they are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency

Floats = NDArray[np.float64]
Steps = NDArray[np.int32]

GRID = 2.0**-24
"""Clipped logits are whole multiples of this, so that medians, midpoints and sums of a batch are exact in float64."""

_MAX_CLIP = 64.0  # so that a clipped logit is an int32 number of grid steps: 64/GRID = 2^30
_BLOCK = 2**17  # entries, 1 MiB of float64
_COLUMNS, _ROWS = 1024, 8
_MAX_RANGE = 600.0  # 2c/τ; above it exp(−2c/τ) times a float64 rounding error would underflow


class Cost(NamedTuple):
    """What one token cost: upper bounds on the signed log-ratios, and the γ of Definition 4."""

    u_minus: float
    u_plus: float
    gamma: float

    @property
    def gamma_star(self) -> float:
        """The exact per-token cost max(u⁻, u⁺)."""
        return max(self.u_minus, self.u_plus)


def slack(vocabulary: int, clip: float, temperature: float) -> float:
    """A bound on the float64 error of a difference of two log-probabilities computed here.

    With u = 2^-53 and r = 2c/τ: z − c is exact (a multiple of GRID/2 below 2^8), the quotient by τ has absolute error
    ≤ r·u, exp is taken to be accurate to 4 units in the last place, so each weight has relative error ≤ (r + 9)u. The
    increments of `_ladder_sums` telescope, so they keep that error and add ≤ 2u. A sum of at most 3V positive terms in
    any order adds ≤ 3V·u. The logarithm, at most r + log V in absolute value, the quotient and the two subtractions
    round ≤ 4(r + log V)u. Twice the total, for two log-probabilities, is (6V + 10r + 8 log V + 22)u; the value returned
    leaves room for the terms in u².
    """
    spread = 2 * clip / temperature
    return 2.0**-52 * (3 * vocabulary + 8 * spread + 4 * math.log(vocabulary) + 32)


def clip_logits(logits: ArrayLike, clip: float) -> Floats:
    """Clipped logits max(−c, z − max z + c), rounded to `GRID`, along the last axis.

    The result is a fixed function of each row by itself, so neither the clip nor the rounding costs privacy. Where c is
    no multiple of GRID, it is first rounded down to one, so that no entry leaves [−c, c].

    Args:
        logits: shape (…, V); −inf is allowed where another entry of the row is finite.
        clip: c > 0, at most 64.

    Returns:
        Shape (…, V), float64.

    Raises:
        ValueError: for a row with NaN, +inf or no finite entry, and for an impossible clip.
    """
    return np.asarray(clip_steps(logits, clip) * GRID, dtype=np.float64)


def clip_steps(logits: ArrayLike, clip: float) -> Steps:
    """What `clip_logits` gives, as whole numbers of `GRID`, int32. Arguments and errors are the same."""
    steps = _clip_steps(clip)
    raw = np.asarray(logits)
    if raw.ndim == 0 or raw.shape[-1] == 0:
        raise ValueError(f"logits need a last axis over the vocabulary, not shape {raw.shape}")
    flat = raw.reshape(-1, raw.shape[-1])
    clipped = np.empty(flat.shape, dtype=np.int32)
    for rows in _blocks(*flat.shape):
        block = flat[rows].astype(np.float64)
        top = block.max(axis=-1, keepdims=True)
        if not np.isfinite(top).all():
            raise ValueError("logits must be numbers, with at least one finite entry a row and none at +inf")
        block -= top
        block *= 1 / GRID
        np.rint(block, out=block)
        block += steps
        np.maximum(block, -steps, out=block)
        clipped[rows] = block
    return clipped.reshape(raw.shape)


@dataclass(slots=True, eq=False)
class Medians:
    """The middle of one batch of clipped logits: its median, the medians of its neighbours, and what a token costs.

    Build it with `Medians.of`. One sort along the batch serves every method.

    Attributes:
        size: the number of rows B.
        clip: c, rounded down to the grid.
        median: shape (V,): the logits that are released (divided by τ); the fallback for an empty batch.
        adjacency: the neighbouring relation of `left`, `right` and, by default, of `costs`.
    """

    size: int
    clip: float
    median: Floats
    adjacency: Adjacency
    _fallback: Floats
    _middle: tuple[Floats, ...]  # a, b, d of an odd batch; w, a, b, d of an even one
    _steps: Steps  # the batch, in grid steps

    @classmethod
    def of(
        cls,
        clipped: ArrayLike,
        *,
        clip: float,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        fallback: ArrayLike | None = None,
    ) -> Medians:
        """The medians of a batch.

        Args:
            clipped: shape (B, V), B ≥ 0, the output of `clip_logits` (float32 or float64).
            clip: the c it was clipped with.
            adjacency: add_remove or replace_one.
            fallback: shape (V,), the public clipped logits that an empty batch releases; None is the uniform law.

        Raises:
            ValueError: for another shape, an entry outside [−c, c], or another adjacency.
        """
        limit = _clip_steps(clip)
        batch = np.asarray(clipped)
        if batch.ndim != 2 or batch.shape[1] == 0:
            raise ValueError(f"a batch needs shape (records, vocabulary), not {batch.shape}")
        whole = np.empty(batch.shape, dtype=np.int32)
        for rows in _blocks(*batch.shape):
            steps = batch[rows] * (1 / GRID)
            np.rint(steps, out=steps)
            if not (steps.max() <= limit and steps.min() >= -limit):
                raise ValueError(f"the batch has entries outside [−{clip}, {clip}]; clip it with clip_logits first")
            whole[rows] = steps
        return cls.of_steps(whole, clip=clip, adjacency=adjacency, fallback=fallback)

    @classmethod
    def of_steps(
        cls,
        steps: Steps,
        *,
        clip: float,
        adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
        fallback: ArrayLike | None = None,
    ) -> Medians:
        """The same for a batch in grid steps, shape (B, V), as `clip_steps` gives it: no entry is checked again."""
        limit = _clip_steps(clip)
        size, vocabulary = steps.shape
        half = size // 2
        ranks = _sorted_rows(steps, range(half - 1, half + 2) if size % 2 else range(half - 2, half + 2), limit)
        middle = tuple(np.asarray(row * GRID, dtype=np.float64) for row in ranks)
        base = _fallback_vector(fallback, vocabulary, limit)
        even = (middle[1] + middle[2]) / 2 if size else base
        median = middle[1] if size % 2 else even
        return cls(size, limit * GRID, median, _relation(adjacency), base, middle, steps)

    @property
    def left(self) -> Floats:
        """Shape (V,): the smallest median of a neighbour in each coordinate (for replace_one, over all rows)."""
        return self._interval(self.adjacency)[0]

    @property
    def right(self) -> Floats:
        """Shape (V,): the largest median of a neighbour in each coordinate (for replace_one, over all rows)."""
        return self._interval(self.adjacency)[1]

    def log_probability(self, token: int, temperature: float) -> float:
        """log softmax(median/τ) of `token`."""
        return self._log_law(self.median, token, temperature)

    def leave_one_out(self, token: int, temperature: float) -> Floats:
        """log p_D(x) − log p_{D∖i}(x) for every row i, shape (B,): what row i changed. A batch of one is compared with
        the fallback. These are realised values, not upper bounds; each is within [−u⁺, u⁻] of `costs` up to `slack`."""
        self._check(token, temperature)
        base = self.log_probability(token, temperature)
        if self.size <= 1:
            return np.full(self.size, base - self._log_law(self._fallback, token, temperature))
        masks: tuple[tuple[int, bool], ...]
        ladder: tuple[Floats, ...]
        if self.size % 2:
            a, b, d = self._middle
            ladder = ((a + b) / 2, (a + d) / 2, (b + d) / 2)
            masks = ((1, False), (1, True))
        else:
            _, a, b, _ = self._middle
            ladder = (a, b)
            masks = ((1, False),)
        sums, values = self._ladder_sums(ladder, masks, temperature, token)
        own = self._weight(values, temperature)
        return base - ((values - self.clip) / temperature - np.log(sums + own))

    def costs(
        self,
        token: int,
        temperature: float,
        adjacency: Adjacency | str | None = None,
        *,
        rounding: float = 0.0,
    ) -> Cost:
        """What releasing `token` costs.

        Args:
            token: the sampled x, in [0, V).
            temperature: τ > 0, with 2c/τ at most 600.
            adjacency: add_remove or replace_one; by default the object's own.
            rounding: a bound on |log p̃(y)/p(y)| between the law that was sampled and the exact softmax; twice it is
                added to u⁻ and u⁺.

        Returns:
            (u⁻, u⁺, γ), each an upper bound that counts its float error.
        """
        self._check(token, temperature)
        relation = self.adjacency if adjacency is None else _relation(adjacency)
        error = slack(len(self.median), self.clip, temperature)
        base = self.log_probability(token, temperature)
        if relation is Adjacency.REPLACE_ONE:
            lowest, highest = self._replacement_extremes(token, temperature, base)
        else:
            left, right = self._interval(relation)
            lowest = self._corner(right, left, token, temperature)
            highest = self._corner(left, right, token, temperature)
            if self.size == 1:
                fallen = self._log_law(self._fallback, token, temperature)
                lowest, highest = min(lowest, fallen), max(highest, fallen)
        extra = error + 2 * rounding
        return Cost(
            max(base - lowest, 0.0) + extra,
            max(highest - base, 0.0) + extra,
            self._published(token, temperature, base) + error,
        )

    def _check(self, token: int, temperature: float) -> None:
        if not 0 <= token < len(self.median):
            raise ValueError(f"token must be between 0 and {len(self.median) - 1}, not {token!r}")
        check_temperature(self.clip, temperature)

    def _interval(self, adjacency: Adjacency) -> tuple[Floats, Floats]:
        """L and R: the rows of the table in `ex_post`, or for replace_one the hull over all rows."""
        if self.size % 2:
            a, b, d = self._middle
            return (a, d) if adjacency is Adjacency.REPLACE_ONE else ((a + b) / 2, (b + d) / 2)
        w, a, b, d = self._middle
        if adjacency is Adjacency.REPLACE_ONE:
            return ((w + a) / 2, (b + d) / 2) if self.size else (self.median, self.median)
        return a, b

    def _weight(self, logits: Floats, temperature: float) -> Floats:
        """exp((z − c)/τ), at most 1, so that no sum overflows."""
        return np.asarray(np.exp((logits - self.clip) / temperature))

    def _log_law(self, logits: Floats, token: int, temperature: float) -> float:
        total = float(self._weight(logits, temperature).sum())
        return float((logits[token] - self.clip) / temperature) - math.log(total)

    def _corner(self, others: Floats, own: Floats, token: int, temperature: float) -> float:
        """log softmax(w/τ)_x for w = `others` except w_x = `own`_x."""
        corner = others.copy()
        corner[token] = own[token]
        return self._log_law(corner, token, temperature)

    def _published(self, token: int, temperature: float, base: float) -> float:
        """γ = max{log 1/α, log β} of Definition 4, with [a, d] of an odd batch and [a, b] of an even one."""
        left, right = self._middle[-3 if self.size % 2 else 1], self._middle[-1 if self.size % 2 else 2]
        centre = float(self.median[token])
        log_total = (centre - self.clip) / temperature - base
        log_left = math.log(float(self._weight(left, temperature).sum()))
        log_right = math.log(float(self._weight(right, temperature).sum()))
        up = (float(right[token]) - centre) / temperature + log_total - log_left
        down = (centre - float(left[token])) / temperature + log_right - log_total
        return max(up, down, 0.0)

    def _replacement_extremes(self, token: int, temperature: float, base: float) -> tuple[float, float]:
        """The smallest and largest log-probability of `token` when one row is exchanged for any vector.

        Without row i, whose entry in a coordinate is v, the box of an added vector is, for an odd batch,
        L = b if v < b else a and R = d if v ≤ b else b; for an even one, L = (a+b)/2 if v < a, (w+b)/2 if v = a,
        (w+a)/2 if v > a, and R = (b+d)/2 if v ≤ a, (a+d)/2 if a < v ≤ b, (a+b)/2 if v > b. (Ties are covered: equal
        values give the same batch whichever of them goes.)
        """
        if self.size == 0:
            return base, base
        if self.size % 2:
            a, b, d = self._middle
            lower = self._ladder_sums((a, b), ((1, True),), temperature, token)
            upper = self._ladder_sums((b, d), ((1, False),), temperature, token)
        else:
            w, a, b, d = self._middle
            low, high = ((w + a) / 2, (w + b) / 2, (a + b) / 2), ((a + b) / 2, (a + d) / 2, (b + d) / 2)
            lower = self._ladder_sums(low, ((1, False), (1, True)), temperature, token)
            upper = self._ladder_sums(high, ((2, False), (1, False)), temperature, token)
        lowest = self._log_odds(upper[0], lower[1], temperature)
        highest = self._log_odds(lower[0], upper[1], temperature)
        return float(lowest.min()), float(highest.max())

    def _log_odds(self, others: Floats, own: Floats, temperature: float) -> Floats:
        """Log-probability of the token with logits `own`, shape (B,), when all others weigh `others`, shape (B,)."""
        return (own - self.clip) / temperature - np.log(others + self._weight(own, temperature))

    def _mask(self, rank: int, strict: bool) -> Floats:
        """Shape (B, V) of 0 and 1: whether each entry is below (at most, if not strict) the middle value `rank`."""
        threshold = np.rint(self._middle[rank] * (1 / GRID)).astype(np.int32)
        return (self._steps < threshold if strict else self._steps <= threshold).astype(np.float64)

    def _ladder_sums(
        self, levels: Sequence[Floats], masks: Sequence[tuple[int, bool]], temperature: float, token: int
    ) -> tuple[Floats, Floats]:
        """For every row i, the total weight of all tokens but `token`, and the logit of `token`, both of shape (B,).

        Row i's vector is levels[0] where no mask holds, levels[1] where the first does, levels[2] where the second
        does too. Levels ascend, so every increment is ≥ 0 and nothing cancels.
        """
        weights = [self._weight(level, temperature) for level in levels]
        for weight in weights:
            weight[token] = 0.0
        sums = np.full(self.size, weights[0].sum())
        values = np.full(self.size, levels[0][token])
        for index, (rank, strict) in enumerate(masks):
            mask = self._mask(rank, strict)
            sums += mask @ (weights[index + 1] - weights[index])
            values += mask[:, token] * (levels[index + 1][token] - levels[index][token])
            del mask  # before the next is made: its memory is used again instead of mapped anew
        return sums, values


def _sorted_rows(steps: Steps, wanted: range, limit: int) -> Steps:
    """The wanted rows of the batch sorted along its first axis; −limit and limit before the first and after the last.

    Sorting short contiguous columns, some at a time, is three times as fast as sorting along the first axis. They are
    turned a few rows at a time, because rows that lie a power of two apart push each other out of the cache.
    """
    size, vocabulary = steps.shape
    ranks = np.empty((len(wanted), vocabulary), dtype=np.int32)
    inside = [rank for rank in wanted if 0 <= rank < size]
    for start in range(0, vocabulary if inside else 0, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        wide = steps[:, columns]
        block = np.empty(wide.shape[::-1], dtype=np.int32)
        for row in range(0, size, _ROWS):
            block[:, row : row + _ROWS] = wide[row : row + _ROWS].T
        block.sort(axis=1)
        ranks[inside[0] - wanted[0] : inside[-1] - wanted[0] + 1, columns] = block[:, inside[0] : inside[-1] + 1].T
    for place, rank in enumerate(wanted):
        if not 0 <= rank < size:
            ranks[place] = -limit if rank < 0 else limit
    return ranks


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows that stay in a processor's cache while several operations pass over them."""
    height = max(1, _BLOCK // columns)
    return (slice(start, min(start + height, rows)) for start in range(0, rows, height))


def _clip_steps(clip: float) -> int:
    """c in grid steps, rounded down."""
    validate.positive(clip=clip)
    if not GRID <= clip <= _MAX_CLIP:
        raise ValueError(f"clip must be between {GRID:.3g} and {_MAX_CLIP:g}, not {clip!r}")
    return math.floor(clip / GRID)


def check_temperature(clip: float, temperature: float) -> None:
    validate.positive(temperature=temperature)
    if 2 * clip / temperature > _MAX_RANGE:
        raise ValueError(
            f"2·clip/temperature must be at most {_MAX_RANGE:g}, not {2 * clip / temperature:g}; raise the temperature"
        )


def _relation(adjacency: Adjacency | str) -> Adjacency:
    if adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        raise ValueError(f"ex-post costs are defined under add_remove and replace_one, not {str(adjacency)!r}")
    return Adjacency(adjacency)


def _fallback_vector(fallback: ArrayLike | None, vocabulary: int, limit: int) -> Floats:
    if fallback is None:
        return np.full(vocabulary, limit * GRID)
    vector = np.rint(np.asarray(fallback, dtype=np.float64) / GRID)
    if vector.shape != (vocabulary,) or not (np.abs(vector) <= limit).all():
        raise ValueError(
            f"the fallback needs shape ({vocabulary},) and entries within the clip, not shape {vector.shape}"
        )
    return np.asarray(vector * GRID)
