"""The result of an audit: bounds, rates with exact intervals, controls, and everything that was tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpassay.accounting.bounds import Bound, Interval
from dpassay.audits.statistics.binomial import clopper_pearson
from dpassay.base import validate

NO_CONCLUSION = "No conclusion"
"""How the sentence of an audit begins which could have found nothing, or of which a control failed."""


def no_conclusion(*reasons: str) -> str:
    """The sentence of an audit from which nothing follows."""
    return f"{NO_CONCLUSION}: {'; '.join(reasons)}."


def refuted_where_concluded(refuted: bool | None, concluded: bool) -> bool | None:
    """Whether a claim is refuted, as every result says it: None without a claim, or where there is no conclusion."""
    return refuted if refuted or concluded else None


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of hits, with the exact Clopper–Pearson interval of their rate if there is one rate.

    Attributes:
        name: what was counted.
        hits: number of hits, 0 to `trials`.
        trials: number of trials.
        confidence: coverage of the interval, if the trials are independent; None for counts without an interval, such
            as those of events that change, or of trials that stop when there are enough hits.
    """

    name: str
    hits: int
    trials: int
    confidence: float | None = None

    def __post_init__(self) -> None:
        validate.integer(hits=self.hits)
        validate.integer(minimum=self.hits, trials=self.trials)
        if self.confidence is not None:
            validate.open_probability(confidence=self.confidence)

    @property
    def rate(self) -> float:
        """hits/trials; 0 if there was no trial."""
        return self.hits / self.trials if self.trials else 0.0

    @property
    def interval(self) -> Interval | None:
        """The Clopper–Pearson interval of the rate; None without a confidence."""
        return None if self.confidence is None else clopper_pearson(self.hits, self.trials, confidence=self.confidence)

    def to_json(self) -> dict[str, Any]:
        """The rate as plain JSON types."""
        interval = self.interval
        ends = None if interval is None else [interval.lower, interval.upper]
        return {**dataclasses.asdict(self), "rate": self.rate, "interval": ends}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of one audit (a game, an attack and statistics).

    Attributes:
        name: registry name of the audit.
        game: what the attacker is given and has to guess.
        attack: how the attacker guesses.
        statistics: the statistics that turn guesses into bounds.
        conclusion: one sentence for the reader; it says so if a control failed.
        trials: number of trials of the game, counted by unit.
        bounds: lower bounds; empty if no conclusion is drawn.
        rates: hit rates of the audit.
        controls: hit rates of the controls.
        controls_passed: whether every control passed; None if there is none.
        difference: confidence interval of the source hit rate minus the holdout hit rate.
        control_difference: the same interval for the positive control.
        p_value: of the hypothesis that the output does not depend on who is in the data; no ε follows from it.
        multiplicity: every statistic, score, threshold and canary kind that was tried.
        contradictions: one sentence for each observation that contradicts a certified statement about the run's
            events. If there is one, no upper bound of the run supports a claim (`dpassay.audits.verdict`).
        details: further numbers, as JSON types only.
    """

    name: str
    game: str
    attack: str
    statistics: tuple[str, ...]
    conclusion: str
    trials: int
    bounds: tuple[Bound, ...] = ()
    rates: tuple[Rate, ...] = ()
    controls: tuple[Rate, ...] = ()
    controls_passed: bool | None = None
    difference: Interval | None = None
    control_difference: Interval | None = None
    p_value: float | None = None
    multiplicity: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn; if not, the sentence says what would make it work."""
        return not self.conclusion.startswith(NO_CONCLUSION)

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON types, in the form of the assay document; `contradictions` are part of `details`."""
        return {
            "name": self.name,
            "game": self.game,
            "attack": self.attack,
            "statistics": list(self.statistics),
            "conclusion": self.conclusion,
            "trials": self.trials,
            "bounds": [bound.to_json() for bound in self.bounds],
            "rates": [rate.to_json() for rate in self.rates],
            "controls": [rate.to_json() for rate in self.controls],
            "controls_passed": self.controls_passed,
            "difference": _ends(self.difference),
            "control_difference": _ends(self.control_difference),
            "p_value": self.p_value,
            "multiplicity": list(self.multiplicity),
            "details": {**self.details, "contradictions": list(self.contradictions)},
        }


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.lower, interval.upper]
