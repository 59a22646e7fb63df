"""The design of an audit of a third-party generator, fixed before the run, and the largest ε that it can show."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from dpassay.accounting.adjacency import RECORD_UNITS, Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.audits.statistics.ceilings import OneRun
from dpassay.audits.statistics.one_run import canaries_needed, epsilon_one_run, epsilons_one_run
from dpassay.audits.statistics.power import AsPrinted
from dpassay.audits.verdict import check_confidence
from dpassay.base import validate

Claim = PureDP | ApproxDP

_MIN_EPSILON = 1e-6  # stands in for ε = 0, which takes equally many guesses
_RUN = "the run read the planted canaries and nothing else of the plan, and was decided on before any result was seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanariesDesign:
    """The parameters of the audit that are fixed before the run.

    Attributes:
        candidates: m, the number of candidates.
        guesses: r, how many of the highest scores are guessed "in"; None guesses every candidate that scores above 0.
        scorings: K, how many synthetic files and models may be scored.
        confidence: 1 − β, jointly for all scorings; with a claim, one at which claims are refuted (`check_confidence`).
        unit: what a candidate is.
        claim: the claim under adding or removing a unit; None for no claim.
        delta: δ at which ε is bounded; that of the claim, if there is one.
    """

    candidates: int
    guesses: int | None
    scorings: int
    confidence: float
    unit: Unit
    claim: Claim | None = None
    delta: float = 0.0

    def __post_init__(self) -> None:
        validate.integer(minimum=2, candidates=self.candidates)
        if self.guesses is not None:
            validate.integer(minimum=1, guesses=self.guesses)
            if self.guesses > self.candidates // 2:
                raise ValueError(
                    f"guesses must be at most half of the {self.candidates} candidates, since only about half of them "
                    f"are in the data; not {self.guesses}"
                )
        validate.integer(minimum=1, scorings=self.scorings)
        validate.open_probability(confidence=self.confidence)
        validate.probability_below_one(delta=self.delta)
        check_confidence(self.confidence, self.claim)
        if self.claim is not None and self.delta != (self.claim.delta if isinstance(self.claim, ApproxDP) else 0.0):
            raise ValueError(f"ε is bounded at the δ of the claim, not at {self.delta}")
        if self.unit.is_secret:
            raise ValueError(f"including or omitting canaries cannot test unit secret; use {RECORD_UNITS}")

    @property
    def rule(self) -> Literal["tight", "adaptive"]:
        """The rule of `epsilon_one_run` that accounts for δ."""
        return "adaptive" if self.guesses is None else "tight"

    @property
    def test(self) -> OneRun | AsPrinted:
        """The statistic and its size, whose power is computed."""
        return AsPrinted(self.candidates) if self.guesses is None else OneRun(self.candidates, self.guesses, self.rule)

    @property
    def each(self) -> float:
        """The confidence of the bound from one file."""
        return 1 - (1 - self.confidence) / self.scorings

    def ceiling(self, guesses: int) -> float:
        """The largest ε that one file can show with this many guesses, if all of them are correct."""
        return self.epsilon(guesses, guesses)

    def needed(self, epsilon: float) -> int | None:
        """The fewest guesses that show ε, if all are correct; None if half of the candidates are not enough."""
        try:
            result = canaries_needed(
                max(epsilon, _MIN_EPSILON), confidence=self.each, delta=self.delta, m=self.candidates, rule=self.rule
            )
        except ValueError:
            return None
        return result if result <= self.candidates // 2 else None

    def bound(self, guesses: int, correct: int) -> Bound:
        """The lower bound from one file."""
        result = epsilon_one_run(
            self.candidates,
            guesses,
            correct,
            delta=self.delta,
            confidence=self.each,
            rule=self.rule,
            adjacency=Adjacency.ADD_REMOVE,
            unit=self.unit,
        )
        return dataclasses.replace(result, assumptions=(*result.assumptions, _RUN), private=True)

    def epsilon(self, guesses: int, correct: int) -> float:
        """The value of `bound`."""
        result = epsilons_one_run(
            self.candidates, guesses, correct, delta=self.delta, confidence=self.each, rule=self.rule
        )
        return float(result)
