"""What the membership audit is given, and what is fixed before it looks: scores, coins, and how to guess."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Side: TypeAlias = Literal["both", "in"]

LEAST_GUESSES = 100
UNFAIR_LEVEL = 0.001
"""With this probability at most fair coins are taken for others."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What attacks say of candidates, and who was in.

    Attributes:
        by_attack: name of an attack → shape (m,), larger for "in".
        included: shape (m,) of bool.
        seen: shape (k, m) of bool, the candidates that each of the attacker's reference models was trained on, which
            must not depend on `included`; None where there are no such models.
    """

    by_attack: Mapping[str, Floats]
    included: Bools
    seen: Bools | None = None

    def __post_init__(self) -> None:
        if self.included.ndim != 1 or self.included.dtype != np.bool_ or not self.by_attack:
            raise ValueError("membership needs one truth value for each candidate, and at least one attack")
        if self.seen is not None and self.seen.shape[1:] != self.included.shape:
            raise ValueError(f"seen must have a column for each of {len(self.included)} candidates")
        for name, scores in self.by_attack.items():
            if scores.shape != self.included.shape or np.isnan(scores).any():
                raise ValueError(f"attack {name!r} must give each of {len(self.included)} candidates a score, not NaN")
        members = int(self.included.sum())
        if not 0 < members < len(self.included):
            raise ValueError(
                f"{members} of {len(self.included)} candidates were in the data; there must be some in and some out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is fixed before scores are seen.

    Attributes:
        guesses: numbers r of guesses, each paid for; empty for `default_guesses`.
        side: whether ``both`` ends are guessed, or only ``in``.
        fair_coins: whether each candidate was in by its own independent fair coin. Only then there is an ε.
        delta: δ in [0, 1) at which ε is bounded.
        confidence: 1 − β of the bound, and of each interval by itself.
        claimed_epsilon: ε that is claimed at δ; None for no claim.
        unit: what a candidate is.
        adjacency: of the claim; a coin that puts a candidate in or not plays the game of add_remove.
        seed: of the order of ties.
    """

    guesses: tuple[int, ...] = ()
    side: Side = "both"
    fair_coins: bool
    delta: float = 0.0
    confidence: float = 0.95
    claimed_epsilon: float | None = None
    unit: Unit = dataclasses.field(default_factory=Unit)
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    seed: int = 0

    def __post_init__(self) -> None:
        for r in self.guesses:
            validate.integer(minimum=1, guesses=r)
        validate.one_of(("both", "in"), side=self.side)
        validate.probability_below_one(delta=self.delta)
        validate.open_probability(confidence=self.confidence)
        validate.integer(seed=self.seed)
        if self.claimed_epsilon is not None:
            validate.non_negative(claimed_epsilon=self.claimed_epsilon)
        if self.adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(f"candidates that are in or out play the game of add_remove, not of {self.adjacency}")
        if self.unit.kind == "secret":
            raise ValueError("candidates that are in or out test no unit secret; the unit is record, user or group(k)")

    def numbers(self, candidates: int) -> tuple[int, ...]:
        """The numbers of guesses, each once.

        Raises:
            ValueError: for more guesses than candidates.
        """
        numbers = tuple(dict.fromkeys(self.guesses)) or (default_guesses(candidates),)
        if max(numbers) > candidates:
            raise ValueError(f"guesses must be at most the number of candidates, {candidates}, not {max(numbers)}")
        return numbers


def default_guesses(candidates: int) -> int:
    """A tenth of the candidates, but at least 100, or all where there are fewer."""
    return min(candidates, max(LEAST_GUESSES, candidates // 10))


def right_guesses(scores: Floats, included: Bools, guesses: int, *, side: Side, seed: int) -> int:
    """How many of r guesses are right: the ⌈r/2⌉ highest scores "in" and the ⌊r/2⌋ lowest "out", or r "in".

    Args:
        scores: shape (m,).
        included: shape (m,).
        guesses: r ≤ m.
        side: ``both`` or ``in``.
        seed: of the random order in which equal scores stand.
    """
    random_order = np.random.default_rng(seed).permutation(len(scores))
    ranked = random_order[np.argsort(-scores[random_order], kind="stable")]
    called_in = guesses if side == "in" else (guesses + 1) // 2
    called_out = guesses - called_in
    right = included[ranked[:called_in]].sum() + (~included[ranked[len(ranked) - called_out :]]).sum()
    return int(right)


def unfair_coins(scores: Scores) -> list[str]:
    """What independent fair coins do with probability at most `UNFAIR_LEVEL`, in words; empty if they did none of it.

    - So few, or so many, candidates in the data: the tail of Bin(m, ½), twice.
    - That a reference model was trained on so many, or so few, candidates of which the coin says the same: Bin(m, ½)
      again, whatever the model's own members are.
    - That the numbers s_j of reference models with candidate j go with its coin c_j = ±1 so far: Σ_j c_j (s_j − s̄) is
      at least t away from 0 with probability at most 2·exp(−t²/(2·Σ_j (s_j − s̄)²)) (Hoeffding 1963, Theorem 2). It
      is what a candidate does that is in exactly half of all models, the target included.

    The last two make k + 1 tests, each at a level of 1/(k + 1) of the whole.
    """
    m, members = len(scores.included), int(scores.included.sum())
    found = []
    if _two_sided(members, m) <= UNFAIR_LEVEL:
        found.append(
            f"{members} of {m} candidates were in the data, which fair coins do once in a thousand times at most"
        )
    if scores.seen is None or not len(scores.seen):
        return found
    level = UNFAIR_LEVEL / (len(scores.seen) + 1)
    agreement = [int(row.sum()) for row in scores.seen == scores.included]
    numbers = scores.seen.sum(axis=0) - scores.seen.sum(axis=0).mean()
    far = abs(float(np.where(scores.included, numbers, -numbers).sum()))
    spread = float(numbers @ numbers)
    if min(_two_sided(same, m) for same in agreement) <= level or (
        spread > 0 and 2 * math.exp(-(far**2) / (2 * spread)) <= level
    ):
        found.append(
            "what reference models were trained on goes with who was in the data, so that scores know the coins; toss "
            "other coins for each reference model"
        )
    return found


def _two_sided(heads: int, tosses: int) -> float:
    return 2 * float(special.bdtr(min(heads, tosses - heads), tosses, 0.5))
