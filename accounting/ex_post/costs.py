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
(b+d)/2, removing from an even one gives a or b. A batch of one (middle b) that loses its record releases the public
fallback f, which may lie outside [(b−c)/2, (b+c)/2]; that neighbour is compared by itself: u⁻ is the maximum with
log p_b(x) − log p_f(x), and u⁺ with its negative. (Over many tokens this neighbour is the same each time, so the sum
of its signed log-ratios is at most the sum of these maxima.)

Under replace_one D′ has row i exchanged for any vector, so m′ ranges over the add_remove box of the batch without row
i, and the cost is the maximum over i. In particular a batch of one has the box [−c, c] (an empty batch plus any vector:
a replacement never gives the fallback), a batch of two has [(v−c)/2, (v+c)/2] for the row v that stays, and an empty
batch has no row to exchange and costs 0: a unit that moves into it from another batch is counted by `of_run`.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Appendix B, Definitions 3 and 4
and Theorem 2; the boxes above are ours (Definition 3 prints right-median = c for an even batch; it is b).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting.adjacency import Adjacency
from cupel.accounting.ex_post.clipped_rows import Floats, clip_logits
from cupel.accounting.ex_post.medians import Medians, check_temperature

if TYPE_CHECKING:
    pass


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


class PartCost(Protocol):
    """What one disjoint part of a run has cost: Σ u⁻ and Σ u⁺ over its tokens, rounded up."""

    @property
    def u_minus(self) -> float: ...

    @property
    def u_plus(self) -> float: ...


def upward_sum(values: Sequence[float] | Floats) -> float:
    """The sum of non-negative numbers, rounded up: `math.fsum` rounds correctly, one step up covers its rounding."""
    total = math.fsum(values)
    return math.nextafter(total, math.inf) if total else 0.0


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
        for medians, token in _medians_by_token(logits, tokens, clip, temperature, adjacency, fallback)
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
        for medians, token in _medians_by_token(logits, tokens, clip, temperature, Adjacency.ADD_REMOVE, fallback)
    ]
    return rows[0] if np.ndim(tokens) == 0 else np.array(rows, dtype=np.float64)


def _medians_by_token(
    logits: ArrayLike,
    tokens: ArrayLike,
    clip: float,
    temperature: float,
    adjacency: Adjacency | str,
    fallback: ArrayLike | None,
) -> Iterator[tuple[Medians, int]]:
    """Each token with the medians of its batch."""
    array, chosen = np.asarray(logits), np.atleast_1d(np.asarray(tokens))
    if chosen.ndim != 1 or (chosen.size and not np.issubdtype(chosen.dtype, np.integer)):
        raise ValueError(f"tokens must be whole numbers in one list, not {chosen.dtype} of shape {chosen.shape}")
    if array.ndim not in (2, 3) or (array.ndim == 3 and len(array) != len(chosen)):
        raise ValueError(f"logits need shape (B, V), or (tokens, B, V) for {len(chosen)} tokens, not {array.shape}")
    public = None if fallback is None else clip_logits(fallback, clip)
    check_temperature(clip, temperature)
    shared = None
    for index, token in enumerate(chosen):
        if shared is None or array.ndim == 3:
            batch = clip_logits(array if array.ndim == 2 else array[index], clip)
            shared = Medians.of(batch, clip=clip, adjacency=adjacency, fallback=public)
        yield shared, int(token)
