"""Ex-post accounting of median aggregation: what one sampled token cost, given the batch that produced it.

A batch of B records gives B logit vectors over V tokens. Each is clipped to [−c, c] (`clip_logits`), the batch releases
one token drawn from softmax(m/τ), m the coordinate-wise median. A neighbouring batch has another median m′, and each
coordinate of m′ lies in an interval [L, R] that the middle of the batch determines:

    =====================================  ============  ===========
    batch, adjacency                       L             R
    =====================================  ============  ===========
    odd, middle a ≤ b ≤ d; add_remove      (a + b)/2     (b + d)/2
    even, middle a ≤ b; add_remove         a             b
    empty; add_remove                      −c            c
    =====================================  ============  ===========

with −c and c in place of the middle values that a small batch lacks. Every corner of the box [L, R] that matters is
attained by an added vector with entries ±c, so these costs are exact for add_remove, not only bounds:

    u⁻ = log p_m(x) − log p_w(x), w = R except w_x = L_x: the largest log p_D(x)/p_D′(x) over neighbours D′
    u⁺ = log p_w(x) − log p_m(x), w = L except w_x = R_x: the largest log p_D′(x)/p_D(x)

because log softmax(w/τ)_x increases in w_x and decreases in every other coordinate. Both are at least 0. For a fixed D′
the log-ratio of a whole transcript is the sum of those of its tokens, so max(Σ u⁻, Σ u⁺) bounds it in absolute value.

A removal from a batch of two or more stays within the box: removing from an odd batch gives (a+b)/2, (a+d)/2 or
(b+d)/2, removing from an even one gives a or b. A batch of one that loses its record releases the public fallback f, and
f may lie outside [(b−c)/2, (b+c)/2]; that neighbour is compared by itself: u⁻ is the maximum with log p_b(x) − log p_f(x)
and u⁺ with its negative.

Under replace_one D′ has row i exchanged for any vector, so m′ ranges over the add_remove box of the batch without row i,
and the cost is the maximum over i. In particular a batch of one has the box [−c, c] (an empty batch plus any vector:
a replacement never gives the fallback), a batch of two has ((v−c)/2, (v+c)/2) for the row v that stays, and an
empty batch has no row to exchange and costs 0.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Appendix B, Definitions 3 and 4 and
Theorem 2; the boxes above are ours (Definition 3 prints right-median = c for an even batch; it is b).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

GRID = 2.0**-24
"""Clipped logits are whole multiples of this, so that medians, midpoints and sums of a batch are exact in float64."""

_MAX_CLIP = 64.0  # so that a clipped logit is an int32 number of grid steps: 64/GRID = 2^30
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


@dataclass(frozen=True, slots=True, eq=False)
class TokenCosts:
    """The costs of several tokens, in order.

    Attributes:
        u_minus: shape (tokens,), upper bounds on log p_D(x)/p_D′(x) over all neighbours D′.
        u_plus: shape (tokens,), upper bounds on log p_D′(x)/p_D(x).
        gamma: shape (tokens,), γ of Definition 4.
    """

    u_minus: Floats
    u_plus: Floats
    gamma: Floats

    @property
    def gamma_star(self) -> Floats:
        """Shape (tokens,): max(u⁻, u⁺)."""
        return np.maximum(self.u_minus, self.u_plus)

    @property
    def epsilon(self) -> float:
        """ε* of the batch that released these tokens: max(Σ u⁻, Σ u⁺), rounded up."""
        return max(upward_sum(self.u_minus), upward_sum(self.u_plus))

    @property
    def published_epsilon(self) -> float:
        """The ε of Theorem 2 for the batch: Σ γ, rounded up."""
        return upward_sum(self.gamma)


def upward_sum(values: Sequence[float] | Floats) -> float:
    """The sum of non-negative numbers, rounded up: `math.fsum` rounds correctly, one step up covers its rounding."""
    total = math.fsum(values)
    return math.nextafter(total, math.inf) if total else 0.0


def slack(vocabulary: int, clip: float, temperature: float) -> float:
    """A bound on the float64 error of a difference of two log-probabilities computed here.

    With u = 2^-53 and r = 2c/τ: z − c is exact (multiples of GRID/4 below 2^28 steps), the quotient by τ has absolute
    error ≤ r·u, exp is taken to be accurate to 4 units in the last place, so each weight has relative error ≤ (r + 9)u;
    the increments of `_ladder_sums` are differences of two weights, each part of the total, so they at most triple that
    error. A sum of at most 3V positive terms in any order adds ≤ 3V·u. The logarithm, at most r + log V in absolute
    value, and the two subtractions round ≤ 4(r + log V)u. Twice the total, for two log-probabilities, is below the
    value returned; the factor 2^-52 = 2u leaves room for terms in u².
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
    steps = _clip_steps(clip)
    clipped = np.array(logits, dtype=np.float64)
    if clipped.ndim == 0 or clipped.shape[-1] == 0:
        raise ValueError(f"logits need a last axis over the vocabulary, not shape {clipped.shape}")
    top = clipped.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError("logits must be numbers, with at least one finite entry a row and none at +inf")
    clipped -= top
    clipped *= 1 / GRID
    np.rint(clipped, out=clipped)
    clipped += steps
    np.maximum(clipped, -steps, out=clipped)
    clipped *= GRID
    return clipped


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
    _steps: NDArray[np.int32]  # the batch, in grid steps

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
        size, vocabulary = batch.shape
        steps = np.rint(batch * (1 / GRID))
        if size and not (steps.max() <= limit and steps.min() >= -limit):
            raise ValueError(f"the batch has entries outside [−{clip}, {clip}]; clip it with clip_logits first")
        whole = steps.astype(np.int32)
        ranks = np.sort(whole, axis=0)
        low, high = (np.full(vocabulary, side * limit, dtype=np.int32) for side in (-1, 1))

        def rank(k: int) -> Floats:
            row = low if k < 0 else high if k >= size else ranks[k]
            return np.asarray(row * GRID, dtype=np.float64)

        half = size // 2
        middle = tuple(rank(k) for k in (range(half - 1, half + 2) if size % 2 else range(half - 2, half + 2)))
        base = _fallback_vector(fallback, vocabulary, limit)
        if size % 2:
            median = middle[1]
        else:
            median = (middle[1] + middle[2]) / 2 if size else base
        return cls(size, limit * GRID, median, _relation(adjacency), base, middle, whole)

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
        if self.size % 2:
            a, b, d = self._middle
            ladder = ((a + b) / 2, (a + d) / 2, (b + d) / 2)
            masks = self._masks(1, strict=False), self._masks(1, strict=True)
        else:
            _, a, b, _ = self._middle
            ladder = (a, b)
            masks = (self._masks(1, strict=False),)
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
        _check_temperature(self.clip, temperature)

    def _interval(self, adjacency: Adjacency) -> tuple[Floats, Floats]:
        """L and R: the rows of the table above, or for replace_one the hull over all rows."""
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
            lower = self._ladder_sums((a, b), (self._masks(1, strict=True),), temperature, token)
            upper = self._ladder_sums((b, d), (self._masks(1, strict=False),), temperature, token)
        else:
            w, a, b, d = self._middle
            at_most, below = self._masks(1, strict=False), self._masks(1, strict=True)
            lower = self._ladder_sums(((w + a) / 2, (w + b) / 2, (a + b) / 2), (at_most, below), temperature, token)
            middle = self._masks(2, strict=False)
            upper = self._ladder_sums(((a + b) / 2, (a + d) / 2, (b + d) / 2), (middle, at_most), temperature, token)
        lowest = self._log_odds(upper[0], lower[1], temperature)
        highest = self._log_odds(lower[0], upper[1], temperature)
        return float(lowest.min()), float(highest.max())

    def _log_odds(self, others: Floats, own: Floats, temperature: float) -> Floats:
        """Log-probability of the token with logits `own`, shape (B,), when all others weigh `others`, shape (B,)."""
        return (own - self.clip) / temperature - np.log(others + self._weight(own, temperature))

    def _masks(self, rank: int, *, strict: bool) -> Floats:
        """Shape (B, V) of 0 and 1: whether each row is below (at most, if not strict) the middle value `rank`."""
        threshold = np.rint(self._middle[rank] * (1 / GRID)).astype(np.int32)
        return (self._steps < threshold if strict else self._steps <= threshold).astype(np.float64)

    def _ladder_sums(
        self, levels: Sequence[Floats], masks: Sequence[Floats], temperature: float, token: int
    ) -> tuple[Floats, Floats]:
        """For every row i, the total weight of all tokens but `token`, and the logit of `token`.

        Row i's vector is levels[0] where no mask holds, levels[1] where the first does, levels[2] where the second
        does too. Levels ascend, so every increment is ≥ 0 and nothing cancels.
        """
        weights = [self._weight(level, temperature) for level in levels]
        for weight in weights:
            weight[token] = 0.0
        sums = np.full(self.size, weights[0].sum())
        values = np.full(self.size, levels[0][token])
        for mask, below, above, start, end in zip(masks, weights, weights[1:], levels, levels[1:], strict=False):
            sums += mask @ (above - below)
            values += mask[:, token] * (end[token] - start[token])
        return sums, values


def gamma(
    logits: ArrayLike, token: int, *, clip: float, temperature: float, fallback: ArrayLike | None = None
) -> float:
    """The per-token cost γ of Definition 4, with right-median b for an even batch and ±c beyond a small one.

    γ bounds γ* under add_remove for every batch size: the boxes above, and the fallback of a batch of one, lie within
    [a, d] (odd), [a, b] (even). It is no bound under replace_one. The paper defines it for batches of two or more.
    Arguments and errors as for `token_costs`.
    """
    return float(token_costs(logits, token, clip=clip, temperature=temperature, fallback=fallback).gamma[0])


def gamma_star(
    logits: ArrayLike,
    token: int,
    *,
    clip: float,
    temperature: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    fallback: ArrayLike | None = None,
) -> float:
    """The exact per-token cost: the largest |log p_D(x)/p_D′(x)| over all neighbours D′ of the batch.

    Arguments and errors as for `token_costs`.
    """
    costs = token_costs(logits, token, clip=clip, temperature=temperature, adjacency=adjacency, fallback=fallback)
    return float(costs.gamma_star[0])


def token_costs(
    logits: ArrayLike,
    tokens: ArrayLike,
    *,
    clip: float,
    temperature: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    fallback: ArrayLike | None = None,
    rounding: float = 0.0,
) -> TokenCosts:
    """The costs of several tokens.

    Args:
        logits: raw logits, shape (B, V) for one batch that serves all tokens, or (tokens, B, V) with one batch a token.
        tokens: the sampled tokens, shape (tokens,), or one.
        clip: c in (0, 64].
        temperature: τ > 0, with 2c/τ at most 600.
        adjacency: add_remove or replace_one.
        fallback: raw public logits that an empty batch releases, shape (V,); None is the uniform law.
        rounding: as for `Medians.costs`.

    Raises:
        ValueError: for anything else.
    """
    rows = [
        medians.costs(token, temperature, rounding=rounding)
        for medians, token in _pairs(logits, tokens, clip, temperature, adjacency, fallback)
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return TokenCosts(table[:, 0], table[:, 1], table[:, 2])


def leave_one_out(
    logits: ArrayLike, tokens: ArrayLike, *, clip: float, temperature: float, fallback: ArrayLike | None = None
) -> Floats:
    """log p_D(x) − log p_{D∖i}(x) for every row i, all of them from one sort.

    Returns:
        Shape (B,) for a single token, (tokens, B) for several. Arguments and errors as for `token_costs`.
    """
    rows = [
        medians.leave_one_out(token, temperature)
        for medians, token in _pairs(logits, tokens, clip, temperature, Adjacency.ADD_REMOVE, fallback)
    ]
    return rows[0] if np.ndim(tokens) == 0 else np.array(rows, dtype=np.float64)


def _pairs(
    logits: ArrayLike,
    tokens: ArrayLike,
    clip: float,
    temperature: float,
    adjacency: Adjacency | str,
    fallback: ArrayLike | None,
) -> Iterator[tuple[Medians, int]]:
    """Each token with the medians of its batch."""
    array, chosen = np.asarray(logits), np.atleast_1d(np.asarray(tokens))
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"tokens must be whole numbers in one list, not {chosen.dtype} of shape {chosen.shape}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and len(array) != len(chosen)):
        raise ValueError(f"logits need shape (B, V), or (tokens, B, V) for {len(chosen)} tokens, not {array.shape}")
    public = None if fallback is None else clip_logits(fallback, clip)
    _check_temperature(clip, temperature)
    shared = None
    for index, token in enumerate(chosen):
        if shared is None or array.ndim == 3:
            batch = clip_logits(array if array.ndim == 2 else array[index], clip)
            shared = Medians.of(batch, clip=clip, adjacency=adjacency, fallback=public)
        yield shared, int(token)


def _clip_steps(clip: float) -> int:
    """c in grid steps, rounded down."""
    validate.positive(clip=clip)
    if not GRID <= clip <= _MAX_CLIP:
        raise ValueError(f"clip must be between {GRID:.3g} and {_MAX_CLIP:g}, not {clip!r}")
    return math.floor(clip / GRID)


def _check_temperature(clip: float, temperature: float) -> None:
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
