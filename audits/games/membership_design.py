"""Inputs of the membership audit: scores, coins, and the parameters that are fixed before scores are seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy import special

from dpassay.accounting.adjacency import RECORD_UNITS, Adjacency, Unit
from dpassay.base import defaults, validate
from dpassay.base.arrays import Bools, Floats

Side: TypeAlias = Literal["both", "in"]
SIDES: tuple[Side, ...] = get_args(Side)

MIN_GUESSES = 100
UNFAIR_LEVEL = 0.001
"""The probability, at most, with which fair coins are rejected."""


@dataclass(frozen=True, slots=True, eq=False)
class MembershipScores:
    """Membership scores of all candidates, and which of them were in the data.

    Attributes:
        by_attack: name of an attack → scores, shape (m,), larger for "in".
        included: shape (m,) of bool, whether each candidate was in the data.
        seen: shape (k, m) of bool, the candidates that each of the attacker's reference models was trained on, which
            must not depend on `included`; None if there are no such models.
    """

    by_attack: Mapping[str, Floats]
    included: Bools
    seen: Bools | None = None

    def __post_init__(self) -> None:
        if self.included.ndim != 1 or self.included.dtype != np.bool_ or not self.by_attack:
            raise ValueError(
                "membership needs one truth value per candidate, in one dimension, and at least one attack"
            )
        if self.seen is not None and self.seen.shape[1:] != self.included.shape:
            raise ValueError(f"seen must have a column for each of {len(self.included)} candidates")
        for name, scores in self.by_attack.items():
            if scores.shape != self.included.shape or np.isnan(scores).any():
                raise ValueError(
                    f"attack {name!r} needs one score, not NaN, for each of {len(self.included)} candidates"
                )
        members = int(self.included.sum())
        if not 0 < members < len(self.included):
            raise ValueError(
                f"{members} of {len(self.included)} candidates were in the data; at least one must be in and one out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipDesign:
    """The parameters that are fixed before scores are seen.

    Attributes:
        guesses: numbers r of guesses, each corrected for; empty for `default_guesses`.
        side: ``both`` guesses the highest scores "in" and the lowest "out"; ``in`` only the highest.
        fair_coins: whether each candidate was included by its own independent fair coin. Only then ε is bounded.
        delta: δ in [0, 1) at which ε is bounded.
        confidence: 1 − β of the bound, and of each interval by itself.
        claimed_epsilon: ε that is claimed at δ; None for no claim.
        unit: what a candidate is.
        adjacency: of the claim: add_remove if a coin decides whether a candidate is in the data, replace_one if
            `swapped`.
        swapped: whether a coin decides which of two candidates is in the data. Scores then compare the two.
        seed: of the random order of ties.
    """

    guesses: tuple[int, ...] = ()
    side: Side = "both"
    fair_coins: bool
    delta: float = 0.0
    confidence: float = defaults.CONFIDENCE
    claimed_epsilon: float | None = None
    unit: Unit = dataclasses.field(default_factory=Unit)
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    swapped: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for r in self.guesses:
            validate.integer(minimum=1, guesses=r)
        validate.one_of(SIDES, side=self.side)
        validate.probability_below_one(delta=self.delta)
        validate.open_probability(confidence=self.confidence)
        validate.integer(seed=self.seed)
        if self.claimed_epsilon is not None:
            validate.non_negative(claimed_epsilon=self.claimed_epsilon)
        if self.swapped and self.adjacency is not Adjacency.REPLACE_ONE:
            raise ValueError(f"choosing one of two candidates tests replace_one, not {self.adjacency}")
        if not self.swapped and self.adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(f"including or omitting candidates tests add_remove, not {self.adjacency}")
        if self.unit.is_secret:
            raise ValueError(f"including or omitting candidates cannot test unit secret; use {RECORD_UNITS}")

    def numbers(self, candidates: int) -> tuple[int, ...]:
        """The distinct numbers of guesses.

        Raises:
            ValueError: if one exceeds the number of candidates.
        """
        numbers = tuple(dict.fromkeys(self.guesses)) or (default_guesses(candidates),)
        if max(numbers) > candidates:
            raise ValueError(f"guesses must be at most the number of candidates, {candidates}, not {max(numbers)}")
        return numbers


def default_guesses(candidates: int) -> int:
    """A tenth of the candidates, but at least 100; all candidates if there are fewer."""
    return min(candidates, max(MIN_GUESSES, candidates // 10))


def right_guesses(scores: Floats, included: Bools, guesses: int, *, side: Side, seed: int) -> int:
    """The number of correct guesses of r ≤ m: the ⌈r/2⌉ highest scores "in" and the ⌊r/2⌋ lowest "out", or r "in";
    scores and truth have shape (m,), and the seed is of the random order of equal scores."""
    random_order = np.random.default_rng(seed).permutation(len(scores))
    ranked = random_order[np.argsort(-scores[random_order], kind="stable")]
    called_in = guesses if side == "in" else (guesses + 1) // 2
    called_out = guesses - called_in
    right = included[ranked[:called_in]].sum() + (~included[ranked[len(ranked) - called_out :]]).sum()
    return int(right)


def unfair_coins(scores: MembershipScores) -> list[str]:
    """Evidence against independent fair coins, in words; each kind occurs with probability at most `UNFAIR_LEVEL`.

    - Too few or too many candidates are in the data: the two-sided tail of Bin(m, ½).
    - The members of a reference model agree with the coins too often or too rarely. The number of agreements is
      Bin(m, ½), whatever the model's members are.
    - The number s_j of reference models with candidate j correlates with its coin c_j = ±1. Σ_j c_j (s_j − s̄) is at
      least t away from 0 with probability at most 2·exp(−t²/(2·Σ_j (s_j − s̄)²)) (Hoeffding 1963, Theorem 2). This
      detects designs in which each candidate is in exactly half of all models, the target included.

    The last two kinds are k + 1 tests, each at level 1/(k + 1) of the whole.

    Returns:
        One sentence for each kind of evidence; empty if there is none.
    """
    m, members = len(scores.included), int(scores.included.sum())
    results = []
    if _two_sided(members, m) <= UNFAIR_LEVEL:
        results.append(
            f"{members} of {m} candidates were in the data, which fair coins give at most once in a thousand times"
        )
    if scores.seen is None or not len(scores.seen):
        return results
    level = UNFAIR_LEVEL / (len(scores.seen) + 1)
    agreement = [int(row.sum()) for row in scores.seen == scores.included]
    numbers = scores.seen.sum(axis=0) - scores.seen.sum(axis=0).mean()
    far = abs(float(np.where(scores.included, numbers, -numbers).sum()))
    spread = float(numbers @ numbers)
    if min(_two_sided(same, m) for same in agreement) <= level or (
        spread > 0 and 2 * math.exp(-(far**2) / (2 * spread)) <= level
    ):
        results.append(
            "the members of the reference models correlate with those of the data, so scores depend on the coins; "
            "toss separate coins for each reference model"
        )
    return results


def _two_sided(heads: int, tosses: int) -> float:
    return 2 * float(special.bdtr(min(heads, tosses - heads), tosses, 0.5))
