"""Ex-post cost of median aggregation: the cost of one sampled token, given the batch that produced it.

A batch of B records gives B logit vectors over V tokens. Each is clipped to [−c, c] (`clip_logits`). The batch releases
one token drawn from softmax(m/τ), m the coordinate-wise median. Each coordinate of a neighbour's median lies in an
interval [L, R] that the middle of the batch determines. Then

    u⁻ = log p_m(x) − log p_w(x), w = R except w_x = L_x: the largest log p_D(x)/p_D′(x) over neighbours D′
    u⁺ = log p_w(x) − log p_m(x), w = L except w_x = R_x: the largest log p_D′(x)/p_D(x)

are exact under add_remove. For a fixed D′ the log-ratio of a whole transcript is at most max(Σ u⁻, Σ u⁺) in absolute
value. Under replace_one the cost is the largest over the rows of the batch.

Proof: docs/proofs/ex-post.md, Theorems 1 to 4.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Appendix B, Definitions 3 and 4
    and Theorem 2. The intervals are derived in the proof; Definition 3 prints right-median = c for an even batch, and
    it is b.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ex_post.clipped_rows import clip_logits
from dpassay.accounting.ex_post.medians import Medians, check_temperature
from dpassay.base.arrays import Floats


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


class RealisedCost(Protocol):
    """The cost of one disjoint part of a run: Σ u⁻ and Σ u⁺ over its tokens, rounded up."""

    @property
    def u_minus(self) -> float: ...

    @property
    def u_plus(self) -> float: ...


def upward_sum(values: Sequence[float] | Floats) -> float:
    """The sum of non-negative numbers, rounded up: the float after the correctly rounded `math.fsum`."""
    total = math.fsum(values)
    return math.nextafter(total, math.inf) if total else 0.0


def gamma(
    logits: ArrayLike, token: int, *, clip: float, temperature: float, fallback: ArrayLike | None = None
) -> float:
    """The per-token cost γ of Definition 4, with right-median b for an even batch and ±c beyond a small one.

    It bounds γ* under add_remove for every batch size, and is no bound under replace_one. The paper defines it for
    batches of two or more. Arguments and errors as for `token_costs`.

    Proof: docs/proofs/ex-post.md, Theorem 4.
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
        logits: raw logits, shape (B, V) for one batch that serves all tokens, or (tokens, B, V) with one batch per
            token.
        tokens: the sampled tokens, shape (tokens,), or one.
        clip: c in (0, 64].
        temperature: τ > 0, with 2c/τ at most 600.
        adjacency: add_remove or replace_one.
        fallback: raw public logits that an empty batch releases, shape (V,); None is the uniform law.
        rounding: as for `Medians.costs`.

    Raises:
        ValueError: if an argument is invalid.
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
    """log p_D(x) − log p_{D∖i}(x) for every row i, from a single sort.

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
        raise ValueError(f"tokens must be a list of whole numbers, not {chosen.dtype} of shape {chosen.shape}")
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
